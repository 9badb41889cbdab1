//===- SafetensorsTest.cpp - reading files that may come from anywhere ----===//

#include "lib/Runtime/Core/Safetensors.h"
#include "Check.h"
#include "HandModel.h"
#include "lib/Runtime/Core/Hash.h"
#include "lib/Runtime/Core/StoredFile.h"

#include <cstring>
#include <sys/stat.h>

using namespace disc::test;
using namespace disc::rt;

/// What read() says, "" if it is content.
static std::string complaint(const std::string &file) {
  Safetensors result;
  Status status = Safetensors::read(file.data(), file.size(), "f", result);
  if (status.ok())
    return "";
  CHECK(status.code() == Code::File);
  return status.error().message;
}

static std::string complaintAbout(const std::string &header, size_t dataBytes = 8) {
  return complaint(safetensorsRaw(header, std::string(dataBytes, 'x')));
}

TEST(safetensorsRead) {
  std::string file = safetensors({{"b", "F32", {2, 2}, bytesOf({1, 2, 3, 4})},
                                  {"empty", "I64", {3, 0}, ""},
                                  {"a", "U8", {3}, "xyz"},
                                  {"scalar", "F32", {}, bytesOf({5})}});
  Safetensors result;
  CHECK(Safetensors::read(file.data(), file.size(), "f", result).ok());
  CHECK(result.tensors().size() == 4);
  const StoredTensor *b = result.find("b"), *a = result.find("a"), *empty = result.find("empty");
  CHECK(b && b->dtype == DISC_F32 && b->shape == (std::vector<int64_t>{2, 2}) && b->bytes == 16);
  CHECK(b && (b->data - reinterpret_cast<const unsigned char *>(file.data())) % 64 == 0);
  CHECK(a && a->dtype == DISC_U8 && std::memcmp(a->data, "xyz", 3) == 0);
  CHECK(empty && empty->bytes == 0);
  CHECK(result.find("scalar") && result.find("scalar")->shape.empty());
  CHECK(!result.find("c"));
  CHECK_TEXT(complaintAbout("{}", 0), "");
  CHECK_TEXT(complaintAbout(
                 R"({"__metadata__":{"format":"pt","x":""},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}  )"),
             "");
}

TEST(safetensorsRefused) {
  CHECK_TEXT(complaint(""), "f: not a safetensors file: 0 bytes");
  CHECK_TEXT(complaint("1234567"), "f: not a safetensors file: 7 bytes");
  CHECK_TEXT(complaint(std::string(8, '\xff')), "f: not a safetensors file: a header of 18446744073709551615 bytes");
  CHECK_TEXT(complaint(std::string("\x10\0\0\0\0\0\0\0{}", 10)),
             "f: the header of 16 bytes is longer than the file (10 bytes)");
  CHECK_TEXT(complaintAbout(""), "f: not a safetensors file: the header is not a JSON object");
  CHECK_TEXT(complaintAbout("[]"), "f: not a safetensors file: the header is not a JSON object");
  CHECK_TEXT(complaintAbout("{"), "f: header: it is not JSON: error at byte 2");
  CHECK_TEXT(complaintAbout("{}{}"), "f: header: it is not JSON: error at byte 3");
  CHECK_TEXT(complaintAbout("{\"\xff\":{}}"), "f: header: it is not JSON: error at byte 3");
  CHECK_TEXT(complaintAbout(R"({"a":1})"), "f: header: tensor 'a': unexpected: a number");
  CHECK_TEXT(complaintAbout(R"({"a":{}})"), "f: header: tensor 'a': dtype, shape or data_offsets are missing");
  auto tensor = [](const char *fields) { return complaintAbout(std::string("{\"a\":{") + fields + "}}"); };
  CHECK_TEXT(tensor(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"), "f: header: tensor 'a': unknown dtype 'F33'");
  CHECK_TEXT(tensor(R"("dtype":4,"shape":[2],"data_offsets":[0,8])"), "f: header: tensor 'a': unexpected: a number");
  CHECK_TEXT(tensor(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"), "f: header: tensor 'a': unexpected: a number");
  CHECK_TEXT(tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"),
             "f: header: tensor 'a': unexpected: a negative number");
  CHECK_TEXT(tensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"),
             "f: header: tensor 'a': unexpected: a fraction");
  CHECK_TEXT(tensor(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"),
             "f: header: tensor 'a': unexpected: an array");
  CHECK_TEXT(tensor(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])"),
             "f: header: tensor 'a': a size is too large");
  CHECK_TEXT(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0])"),
             "f: header: tensor 'a': data_offsets are not two numbers");
  CHECK_TEXT(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"),
             "f: header: tensor 'a': data_offsets are not two numbers");
  CHECK_TEXT(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1)"),
             "f: header: tensor 'a': unknown key 'x'");
  CHECK_TEXT(tensor(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])"),
             "f: header: tensor 'a': dtype appears twice");
  CHECK_TEXT(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"),
             "f: tensor 'a': data_offsets [8, 0] end before they begin");
  CHECK_TEXT(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,9])"),
             "f: tensor 'a': data_offsets [0, 9] are beyond the end of the data (8 bytes)");
  CHECK_TEXT(tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"),
             "f: tensor 'a': data_offsets [0, 8] do not fit shape [3] of float32");
  CHECK_TEXT(tensor(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8])"),
             "f: tensor 'a': data_offsets [0, 8] do not fit shape [4611686018427387904, 4] of float32");
  CHECK_TEXT(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"),
             "f: tensor 'a': data_offsets [4, 8] leave a gap before them");
  CHECK_TEXT(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), "f: the data has 8 bytes, the tensors 4");
  CHECK_TEXT(complaintAbout(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                            R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})"),
             "f: tensor 'b': data_offsets [4, 8] overlap another tensor");
  CHECK_TEXT(complaintAbout(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                            R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})"),
             "f: tensor 'a' appears twice");
  CHECK_TEXT(complaintAbout(R"({"__metadata__":{"a":1}})"), "f: header: tensor '__metadata__': unexpected: a number");
  CHECK_TEXT(complaintAbout(R"({"__metadata__":{},"__metadata__":{}})"), "f: header: __metadata__ appears twice");
  // Deep nesting ends at the first bracket that the format does not have.
  CHECK_TEXT(complaintAbout("{\"a\":" + std::string(1 << 20, '[')), "f: header: tensor 'a': unexpected: an array");
  std::string rank;
  for (int i = 0; i < 65; ++i)
    rank += i ? ",1" : "1";
  CHECK_TEXT(tensor(("\"dtype\":\"U8\",\"shape\":[" + rank + "],\"data_offsets\":[0,8]").c_str()),
             "f: header: tensor 'a': it has more than 64 dims");
}

TEST(safetensorsNamesAreMadePrintable) {
  CHECK_TEXT(printable("a\nb\x1b[0m"), "a?b?[0m");
  CHECK_TEXT(printable(std::string(200, 'x')), std::string(120, 'x') + "...");
  std::string umlauts;
  for (int i = 0; i < 100; ++i)
    umlauts += "\xc3\xa4";
  CHECK(printable("x" + umlauts).size() == 119 + 3);
}

TEST(safetensorsCutAnywhere) {
  std::string file = safetensors({{"b", "F32", {2}, bytesOf({1, 2})}, {"a", "U8", {3}, "xyz"}});
  for (size_t length = 0; length < file.size(); ++length)
    CHECK(!complaint(file.substr(0, length)).empty());
  CHECK(!complaint(file + "x").empty());
}

TEST(mappedFilesAreRegular) {
  auto complaintOf = [](const std::string &path) {
    std::shared_ptr<StoredFile> file;
    Status status = StoredFile::open(path, StoredFile::Access::Copy, file);
    return status.ok() ? "" : status.error().message;
  };
  std::string path = temporaryPath("mapped"), fifo = temporaryPath("fifo"), missing = temporaryPath("missing");
  CHECK_TEXT(complaintOf(missing), missing + ": cannot open: No such file or directory");
  CHECK_TEXT(complaintOf("/tmp"), "/tmp: is a directory");
  CHECK_TEXT(complaintOf("/dev/zero"), "/dev/zero: is not a regular file");
  CHECK(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_TEXT(complaintOf(fifo), fifo + ": is not a regular file");
  writeFile(path, "");
  CHECK_TEXT(complaintOf(path), path + ": is empty");
  writeFile(path, "abc");
  std::shared_ptr<StoredFile> file;
  CHECK(StoredFile::open(path, StoredFile::Access::Map, file).ok() && file->size() == 3 &&
        std::memcmp(file->data(), "abc", 3) == 0);
  file->prefetch(file->data(), file->size());
  Hash128 hash;
  CHECK(file->hash(3, hash).ok() && hash == blockwiseHash("abc", 3));
}

TEST(hashesOfFilesAreThoseOfTheirBytes) {
  std::string path = temporaryPath("hashed");
  for (size_t size : {size_t(1), kHashBlock - 1, kHashBlock, kHashBlock + 1, 70 * kHashBlock + 5}) {
    std::string bytes(size, 'a');
    bytes[size / 2] = 'b';
    writeFile(path, bytes);
    std::shared_ptr<StoredFile> file;
    Hash128 hash, shorter;
    CHECK(StoredFile::open(path, StoredFile::Access::Parts, file).ok() && file->hash(size, hash).ok());
    CHECK(hash == blockwiseHash(bytes.data(), size));
    CHECK(file->hash(size - 1, shorter).ok() && !(hash == shorter));
    CHECK(!file->hash(size + 1, shorter).ok()); // beyond its end
  }
}

TEST(namesAsTheyArePrinted) {
  using disc::rt::printable;
  CHECK_TEXT(printable("a\tb\x7f"), "a?b?");
  const std::string most(120, 'a');
  CHECK_TEXT(printable(most), most);
  CHECK_TEXT(printable(most + "b"), most + "...");
  // A character of two bytes is cut as a whole; what is no text is cut anyway.
  CHECK_TEXT(printable(std::string(119, 'a') + "\xc3\xa4"), std::string(119, 'a') + "...");
  CHECK_TEXT(printable(std::string(200, '\x80')), "...");
  CHECK_TEXT(disc::rt::storedTypeName(DISC_BF16), "BF16");
  CHECK_TEXT(disc::rt::storedTypeName(0xe08), "F8_E8M0");
  CHECK_TEXT(disc::rt::storedTypeName(0x999), "");
}
