/* Arenas: blocks, limits, lending without a copy, and life after the handle. */
#include "util.h"

#include <sys/mman.h>

static uint64_t arena_stat(const dipc_arena *arena, int32_t stat) {
  uint64_t value = UINT64_MAX;
  OK(dipc_arena_stat(arena, stat, &value, &error_));
  return value;
}

static void blocks_come_and_go(void) {
  dipc_arena_options *options = NULL;
  OK(dipc_arena_options_new(&options, &error_));
  OK(dipc_arena_options_set_region_bytes(options, 1 << 20, &error_));
  OK(dipc_arena_options_set_max_bytes(options, 4 << 20, &error_));
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_arena_options_set_region_bytes(options, 0, &error_));
  dipc_arena *arena = NULL;
  OK(dipc_arena_new(ARROW_DEVICE_CPU, -1, options, &arena, &error_));
  dipc_arena_options_free(options);

  void *blocks[64];
  for (int i = 0; i < 64; i++) {
    OK(dipc_arena_alloc(arena, (size_t)i * 100, &blocks[i], &error_));
    CHECK(blocks[i] != NULL);
    CHECK_EQ((uintptr_t)blocks[i] % 64, 0);
    memset(blocks[i], i, (size_t)i * 100);
  }
  CHECK(arena_stat(arena, DIPC_ARENA_STAT_USED_BYTES) >= 63 * 64 / 2 * 100);
  for (int i = 0; i < 64; i++)
    for (int j = 0; j < i * 100; j++) CHECK_EQ(((uint8_t *)blocks[i])[j], i);

  void *large = NULL;
  FAILS(DIPC_ERR_OUT_OF_MEMORY, "", dipc_arena_alloc(arena, 64 << 20, &large, &error_));
  CHECK(large == NULL);
  OK(dipc_arena_alloc(arena, 2 << 20, &large, &error_)); /* a region of its own */
  OK(dipc_arena_dealloc(arena, large, &error_));

  int local;
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_arena_dealloc(arena, &local, &error_));
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_arena_dealloc(NULL, &local, &error_));
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_arena_dealloc(arena, (char *)blocks[9] + 64, &error_));
  OK(dipc_arena_dealloc(NULL, blocks[0], &error_)); /* the library finds the arena */
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_arena_dealloc(arena, blocks[0], &error_));
  for (int i = 1; i < 32; i++) OK(dipc_arena_dealloc(arena, blocks[i], &error_));

  dipc_arena_free(arena);
  for (int i = 32; i < 64; i++) {
    for (int j = 0; j < i * 100; j++) CHECK_EQ(((uint8_t *)blocks[i])[j], i);
    OK(dipc_arena_dealloc(NULL, blocks[i], &error_));
  }
  FAILS(DIPC_ERR_UNSUPPORTED, "device type 13",
        dipc_arena_new(ARROW_DEVICE_CUDA_MANAGED, 0, NULL, &arena, &error_));
  if (!has_driver())
    FAILS(DIPC_ERR_UNSUPPORTED, "libcuda.so.1",
          dipc_arena_new(ARROW_DEVICE_CUDA, 0, NULL, &arena, &error_));
}

static void another_mapping_of_the_file_has_a_blocks_bytes(void) {
  dipc_arena *arena = NULL;
  OK(dipc_arena_new(ARROW_DEVICE_CPU, 0, NULL, &arena, &error_));
  const size_t length = 64 << 10;
  void *blocks[2];
  for (int i = 0; i < 2; i++) {
    OK(dipc_arena_alloc(arena, length, &blocks[i], &error_));
    memset(blocks[i], 'a' + i, length);
  }
  int fd = -1;
  uint64_t offset = 0;
  OK(dipc_arena_find_file(blocks[1], length, &fd, &offset, &error_));
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), before = offset % page;
  CHECK(mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
  char *mapped = mmap(NULL, before + length, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd,
                      (off_t)(offset - before));
  CHECK(mapped != MAP_FAILED);
  CHECK(memcmp(mapped + before, blocks[1], length) == 0);
  memset(mapped + before, 'z', length);
  CHECK(*(char *)blocks[1] == 'b');
  CHECK_EQ(munmap(mapped, before + length), 0);
  STATUS(DIPC_NOTHING, dipc_arena_find_file(blocks[0], (size_t)1 << 40, &fd, &offset, &error_));
  for (int i = 0; i < 2; i++) OK(dipc_arena_dealloc(arena, blocks[i], &error_));
  dipc_arena_free(arena);
}

static void arena_tables_are_lent_without_a_copy(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  dipc_client *client = new_client();
  table_memory lendable = arena_memory();
  publish(server, "lent", 4, 100000, &lendable);
  struct ArrowDeviceArrayStream stream = get(client, uri, "lent");
  struct ArrowDeviceArray batches[4];
  for (int64_t i = 0; i < 4; i++) {
    CHECK_EQ(stream.get_next(&stream, &batches[i]), 0);
    table_check(&batches[i].array, i * 100000, 100000);
  }
  CHECK(server_stat(server, DIPC_SERVER_STAT_BYTES_LENT) > 4 * 100000 * 8);
  CHECK_EQ(server_stat(server, DIPC_SERVER_STAT_BYTES_COPIED), 0);
  CHECK_EQ(server_stat(server, DIPC_SERVER_STAT_BYTES_SENT), 0);
  CHECK_EQ(server_stat(server, DIPC_SERVER_STAT_REGION_BYTES), 0);
  CHECK(server_stat(server, DIPC_SERVER_STAT_LENT_OUTSTANDING) > 0);
  CHECK(stream_stat(&stream, DIPC_STREAM_STAT_BYTES_LENT) > 4 * 100000 * 8);
  CHECK_EQ(stream_stat(&stream, DIPC_STREAM_STAT_BYTES_COPIED), 0);
  CHECK_EQ(stream_stat(&stream, DIPC_STREAM_STAT_BYTES_RECEIVED), 0);
  CHECK_EQ(stream_stat(&stream, DIPC_STREAM_STAT_ROWS), 400000);
  CHECK_EQ(stream_stat(&stream, DIPC_STREAM_STAT_BATCHES), 4);
  for (int i = 0; i < 4; i++) batches[i].array.release(&batches[i].array);
  CHECK_EQ(table_check_stream(&stream), 0);
  for (int i = 0; server_stat(server, DIPC_SERVER_STAT_LENT_OUTSTANDING) > 0 && i < 10000; i++)
    sleep_ms(1);
  CHECK_EQ(server_stat(server, DIPC_SERVER_STAT_LENT_OUTSTANDING), 0);

  /* The arena's handle may be freed before its table. */
  dipc_arena_free(lendable.context);
  lendable.context = NULL;
  stream = get(client, uri, "lent");
  CHECK_EQ(table_check_stream(&stream), 400000);
  dipc_client_free(client);
  dipc_server_free(server);
  table_wait_live(0);
}

static void other_tables_are_copied_once_or_sent(void) {
  char uri[DIPC_URI_BYTES];
  dipc_server *server = new_server(NULL, uri);
  dipc_client *client = new_client();
  publish(server, "copied", 2, 100000, NULL);
  struct ArrowDeviceArrayStream stream = get(client, uri, "copied");
  CHECK_EQ(table_check_stream(&stream), 200000);
  CHECK(server_stat(server, DIPC_SERVER_STAT_BYTES_COPIED) > 2 * 100000 * 8);
  CHECK_EQ(server_stat(server, DIPC_SERVER_STAT_BYTES_LENT), 0);
  CHECK_EQ(server_stat(server, DIPC_SERVER_STAT_BYTES_SENT), 0);
  dipc_server_free(server);

  dipc_server_options *options = NULL;
  OK(dipc_server_options_new(&options, &error_));
  for (int compression = 0; compression <= DIPC_COMPRESSION_ZSTD; compression++) {
    OK(dipc_server_options_set_body(options, DIPC_BODY_PACKED, &error_));
    OK(dipc_server_options_set_compression(options, compression, &error_));
    server = new_server(options, uri);
    publish(server, "sent", 2, 100000, NULL);
    stream = get(client, uri, "sent");
    CHECK_EQ(table_check_stream(&stream), 200000);
    const uint64_t sent = server_stat(server, DIPC_SERVER_STAT_BYTES_SENT);
    CHECK((sent > 2 * 100000 * 18) == (compression == DIPC_COMPRESSION_NONE));
    CHECK(sent > 0);
    CHECK_EQ(server_stat(server, DIPC_SERVER_STAT_BYTES_COPIED), 0);
    dipc_server_free(server);
  }
  dipc_server_options_free(options);
  dipc_client_free(client);
  table_wait_live(0);
}

int main(void) {
  blocks_come_and_go();
  another_mapping_of_the_file_has_a_blocks_bytes();
  arena_tables_are_lent_without_a_copy();
  other_tables_are_copied_once_or_sent();
  return 0;
}
