#!/usr/bin/env bash
# Makes a folder with what a wheel for another machine is compiled against: headers and libraries of Debian 12's packages
# for that machine, and its Python, which qemu runs to try the wheel.
#
#   cross-root.sh aarch64 FOLDER
#
# The packages are downloaded and unpacked, not installed: apt has lists and a state of its own in FOLDER, so that this
# machine's architectures stay as they are. Needs the network and 3 GB of disk.
set -euo pipefail
machine=$1 folder=$2
die() { printf '[cross-root] error: %s\n' "$*" >&2; exit 1; }
case $machine in
  aarch64) architecture=arm64 ;;
  *) die "cannot cross compile for $machine; only for aarch64" ;;
esac
[ ! -e "$folder/complete" ] || exit 0

# LLVM's CMake files name programs of the packages of tools, and check that they exist.
packages=(
  libmlir-22-dev llvm-22-dev liblld-22-dev mlir-22-tools llvm-22-tools
  libc6-dev libstdc++-12-dev zlib1g-dev libzstd-dev libxml2-dev libedit-dev
  libxxhash-dev nlohmann-json3-dev libeigen3-dev libboost1.81-dev
  python3.11 libpython3.11-dev
)
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial" "$folder/root"
folder=$(cd "$folder" && pwd)
: >"$folder/apt/status"
options=(-q -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture"
  -o "Dir::State=$folder/apt" -o "Dir::State::lists=$folder/apt/lists" -o "Dir::State::status=$folder/apt/status"
  -o "Dir::Cache=$folder/apt" -o "Dir::Cache::archives=$folder/apt/archives")
apt-get "${options[@]}" update >"$folder/apt/log" 2>&1 || true # a list for another architecture only may be missing
apt-get "${options[@]}" install -y --no-install-recommends --download-only "${packages[@]}" >>"$folder/apt/log" 2>&1 ||
  die "apt could not download the packages for $architecture; its output: $folder/apt/log"
for package in "$folder"/apt/archives/*.deb; do dpkg -x "$package" "$folder/root"; done
rm -rf "$folder/apt/archives" "$folder/apt/lists"
# An absolute link (libm.so to /lib/aarch64-linux-gnu/libm.so.6) would lead to this machine's files.
find "$folder/root" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
  ln -sfnr "$folder/root$(readlink "$link")" "$link"
done
# What a build runs is this machine's; both are of one version of LLVM.
for program in llvm-tblgen mlir-tblgen mlir-pdll; do
  ln -sf "/usr/lib/llvm-22/bin/$program" "$folder/root/usr/lib/llvm-22/bin/$program"
done
# What Python's sysconfig knows of the other machine, alone in a folder: the rest of its library is this machine's.
mkdir "$folder/sysconfig"
cp "$folder/root/usr/lib/python3.11/_sysconfigdata__$machine-linux-gnu.py" "$folder/sysconfig/"
touch "$folder/complete"
