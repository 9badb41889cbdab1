/* Embeds one sentence, "hello world", whose token ids a tokenizer made. */
#include <minilm.h>
#include <stdio.h>

int main(void) {
  int64_t ids[] = {101, 7592, 2088, 102}, mask[] = {1, 1, 1, 1};
  float embedding[MINILM_OUTPUT_0_EXTENT_1];
  disc_model *model;
  if (minilm_open(NULL, &model) || minilm_run(model, 1, 4, ids, mask, embedding))
    return fprintf(stderr, "%s\n", disc_last_error()), 1;
  printf("%f %f %f ...\n", embedding[0], embedding[1], embedding[2]);
  disc_free(model);
  return 0;
}
