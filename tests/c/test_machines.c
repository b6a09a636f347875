/* A sender and a receiver joined by hand: no transport, no clock, no threads. */
#include <dipc_machines.h>

#include "util.h"

/* The two ends, and the time. */
typedef struct {
  dipc_sender *sender;
  dipc_receiver *receiver;
  uint64_t now;
  long messages, bodies;
} pair;

/* Joins the parts of a message, as a transport does. */
static uint8_t *joined(const void *const *parts, const size_t *lens, size_t count, size_t *len) {
  *len = 0;
  for (size_t i = 0; i < count; i++) *len += lens[i];
  uint8_t *bytes = malloc(*len + 1);
  size_t at = 0;
  for (size_t i = 0; i < count; at += lens[i++]) memcpy(bytes + at, parts[i], lens[i]);
  return bytes;
}

/* Carries messages until neither end has one. */
static void exchange(pair *self) {
  int32_t class, role;
  uint64_t tag;
  const void *const *parts;
  const size_t *lens;
  size_t count, len;
  for (bool moved = true; moved;) {
    moved = false;
    while (dipc_receiver_poll_transmit(self->receiver, self->now, &class, &role, &tag, &parts,
                                       &lens, &count, NULL) == DIPC_OK) {
      moved = true;
      self->messages++;
      CHECK_EQ(role, DIPC_ROLE_METADATA);
      uint8_t *bytes = joined(parts, lens, count, &len);
      if (class == DIPC_MESSAGE_TAGGED)
        OK(dipc_sender_handle_tagged(self->sender, tag, bytes, len, &error_));
      else
        OK(dipc_sender_handle_control(self->sender, bytes, len, &error_));
      free(bytes);
    }
    while (dipc_sender_poll_transmit(self->sender, &class, &tag, &parts, &lens, &count, NULL) ==
           DIPC_OK) {
      moved = true;
      self->messages++;
      uint8_t *bytes = joined(parts, lens, count, &len);
      switch (class) {
        case DIPC_MESSAGE_METADATA:
          CHECK_EQ(tag, 0);
          dipc_receiver_handle_metadata(self->receiver, self->now, bytes, len, NULL);
          break;
        case DIPC_MESSAGE_TAGGED:
          self->bodies++;
          dipc_receiver_handle_tagged(self->receiver, self->now, tag, bytes, len, NULL);
          break;
        case DIPC_MESSAGE_CONTROL:
          dipc_receiver_handle_control(self->receiver, self->now, DIPC_ROLE_METADATA, bytes, len,
                                       NULL);
          break;
        default: FAIL("class %d: %.*s", class, (int)len, (const char *)bytes);
      }
      free(bytes);
    }
  }
}

static pair ask(int32_t body, const dipc_get_options *options, const char *uri) {
  pair self = {.now = 1};
  OK(dipc_sender_new(uri, body, &self.sender, &error_));
  OK(dipc_receiver_new(&uri, 1, DIPC_VERB_GET, TICKET("a ticket"), NULL, options,
                       &self.receiver, &error_));
  CHECK_EQ(dipc_sender_state(self.sender), DIPC_SENDER_IDLE);
  OK(dipc_receiver_start(self.receiver, self.now, &error_));
  /* A server without the extension does not answer before the schema. */
  const int32_t state = dipc_receiver_state(self.receiver);
  CHECK(state == DIPC_RECEIVER_REQUESTED || state == DIPC_RECEIVER_AWAITING_SCHEMA);
  exchange(&self);
  CHECK_EQ(dipc_sender_state(self.sender), DIPC_SENDER_REQUESTED);
  uint8_t ticket[16];
  size_t len = 0;
  OK(dipc_sender_ticket(self.sender, ticket, sizeof ticket, &len, &error_));
  CHECK(len == 8 && memcmp(ticket, "a ticket", 8) == 0);
  return self;
}

static void begin(pair *self) {
  struct ArrowSchema schema;
  table_schema(&schema);
  CHECK(!dipc_sender_may_send(self->sender));
  OK(dipc_sender_start(self->sender, &schema, ARROW_DEVICE_CPU, &error_));
  schema.release(&schema);
  exchange(self);
  CHECK_EQ(dipc_sender_state(self->sender), DIPC_SENDER_STREAMING);
  CHECK_EQ(dipc_receiver_state(self->receiver), DIPC_RECEIVER_STREAMING);
  OK(dipc_receiver_schema(self->receiver, &schema, &error_));
  table_check_schema(&schema);
  schema.release(&schema);
}

static void end(pair *self) {
  dipc_receiver_free(self->receiver);
  dipc_sender_free(self->sender);
  CHECK_EQ(table_live(), 0);
}

/* Rule U2: lending needs free_data. */
static void lending_needs_a_tag_for_frees(void) {
  dipc_sender *sender = NULL;
  FAILS(DIPC_ERR_INVALID_URI, "free_data",
        dipc_sender_new("mem:a?want_data=1099511627777", DIPC_BODY_LIST, &sender, &error_));
  CHECK(sender == NULL);
}

/* A server's policy for bodies is no form of a sender's bodies, and the other way round. */
static void forms_and_policies_do_not_mix(void) {
  dipc_sender *sender = NULL;
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "body is 2",
        dipc_sender_new("mem:a", DIPC_BODY_LENT, &sender, &error_));
  dipc_server_options *options = NULL;
  OK(dipc_server_options_new(&options, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "body is 3",
        dipc_server_options_set_body(options, DIPC_BODY_LIST, &error_));
  dipc_server_options_free(options);
}

static int finalized;
static void finalize(void *userdata) {
  CHECK(userdata == &finalized);
  finalized++;
}

/* Both kinds of bodies, with the extension and without it. */
static void batches_cross(void) {
  static const char *const uris[] = {"mem:a", "mem:a?want_data=1099511627777&free_data=1099511627778",
                                     "mem:b?dipc=1&dipc_want=1099511627776&"
                                     "want_data=1099511627777&free_data=1099511627778"};
  for (int kind = 0; kind < 6; kind++) {
    const int32_t body = kind % 2 ? DIPC_BODY_LIST : DIPC_BODY_PACKED;
    pair self = ask(body, NULL, uris[kind / 2]);
    if (body == DIPC_BODY_LIST) /* the sender is this process, so all of its memory is readable */
      OK(dipc_receiver_add_memory(self.receiver, 1, (const uint8_t *)1, INTPTR_MAX / 2, &finalized,
                                  finalize, &error_));
    begin(&self);
    struct ArrowDeviceArray batch, received[5];
    for (int64_t i = 0; i < 5; i++) {
      table_batch(&batch, i * 100, 100, NULL);
      OK(dipc_sender_send_batch(self.sender, &batch, NULL, 0, &error_));
      CHECK(batch.array.release == NULL);
      exchange(&self);
      OK(dipc_receiver_next(self.receiver, &received[i], &error_));
      STATUS(DIPC_NOTHING, dipc_receiver_next(self.receiver, &batch, &error_));
    }
    CHECK_EQ(self.bodies, 5);
    CHECK_EQ(dipc_sender_lent_count(self.sender) > 0, body == DIPC_BODY_LIST);
    CHECK_EQ(dipc_receiver_lent_count(self.receiver) > 0, body == DIPC_BODY_LIST);
    OK(dipc_sender_end(self.sender, &error_));
    exchange(&self);
    OK(dipc_receiver_next(self.receiver, &batch, &error_));
    CHECK(batch.array.release == NULL);
    for (int64_t i = 0; i < 5; i++) {
      table_check(&received[i].array, i * 100, 100);
      received[i].array.release(&received[i].array);
    }
    uint64_t time = 0;
    if (body == DIPC_BODY_LIST) { /* rule F5: within ten milliseconds */
      OK(dipc_receiver_poll_timeout(self.receiver, &time, &error_));
      exchange(&self);
      OK(dipc_receiver_poll_timeout(self.receiver, &time, &error_));
      CHECK(time <= self.now + 10000000);
      self.now = time;
      OK(dipc_receiver_handle_timeout(self.receiver, self.now, &error_));
      exchange(&self);
    }
    CHECK_EQ(dipc_sender_lent_count(self.sender), 0);
    CHECK_EQ(dipc_receiver_lent_count(self.receiver), 0);
    STATUS(DIPC_NOTHING, dipc_receiver_poll_timeout(self.receiver, &time, &error_));
    end(&self);
  }
  CHECK_EQ(finalized, 3);
}

static void the_window_holds_batches_back(void) {
  dipc_get_options *options = NULL;
  OK(dipc_get_options_new(&options, &error_));
  OK(dipc_get_options_set_window(options, 3, 1 << 20, &error_));
  pair self = ask(DIPC_BODY_PACKED, options, "mem:a?dipc=1");
  dipc_get_options_free(options);
  begin(&self);
  struct ArrowDeviceArray batch;
  int64_t sent = 0;
  for (; dipc_sender_may_send(self.sender); sent++) {
    table_batch(&batch, sent * 10, 10, NULL);
    OK(dipc_sender_send_batch(self.sender, &batch, NULL, 0, &error_));
    exchange(&self);
  }
  CHECK_EQ(sent, 3); /* rule E5 */
  table_batch(&batch, 0, 10, NULL);
  STATUS(DIPC_ERR_BUSY, dipc_sender_send_batch(self.sender, &batch, NULL, 0, &error_));
  table_check(&batch.array, 0, 10);
  batch.array.release(&batch.array);
  for (int64_t i = 0; i < sent; i++) {
    OK(dipc_receiver_next(self.receiver, &batch, &error_));
    table_check(&batch.array, i * 10, 10);
    batch.array.release(&batch.array);
  }
  STATUS(DIPC_NOTHING, dipc_receiver_next(self.receiver, &batch, &error_));
  exchange(&self);
  CHECK(dipc_sender_may_send(self.sender));
  end(&self);
}

/* The value of a header. */
static void check_header(dipc_headers *headers, const char *key, const char *value) {
  uint8_t bytes[16];
  size_t len = 0;
  OK(dipc_headers_get(headers, key, bytes, sizeof bytes, &len, &error_));
  CHECK(len == strlen(value) && memcmp(bytes, value, len) == 0);
  dipc_headers_free(headers);
}

/* A ticket is described: the host sees what the client wants, and the client gets the answer and
 * its headers. */
static void a_ticket_is_described(void) {
  const char *uri = "mem:a?dipc=1";
  dipc_headers *headers = NULL;
  OK(dipc_headers_new(&headers, &error_));
  OK(dipc_headers_add(headers, "user", (const uint8_t *)"ada", 3, &error_));
  dipc_get_options *options = NULL;
  OK(dipc_get_options_new(&options, &error_));
  OK(dipc_get_options_set_headers(options, headers, &error_));
  OK(dipc_get_options_set_deadline_ns(options, 5 * SECOND, &error_));
  pair self = {.now = 1};
  OK(dipc_sender_new(uri, DIPC_BODY_PACKED, &self.sender, &error_));
  FAILS(DIPC_ERR_INVALID_ARGUMENT, "verb is 2",
        dipc_receiver_new(&uri, 1, DIPC_VERB_PUT, TICKET("t"), NULL, options, &self.receiver,
                          &error_));
  OK(dipc_receiver_new(&uri, 1, DIPC_VERB_DESCRIBE, TICKET("t"), NULL, options, &self.receiver,
                       &error_));
  dipc_get_options_free(options);
  OK(dipc_receiver_start(self.receiver, self.now, &error_));
  exchange(&self);
  CHECK_EQ(dipc_sender_verb(self.sender), DIPC_VERB_DESCRIBE);
  CHECK_EQ(dipc_sender_deadline_ns(self.sender), 5 * SECOND);
  dipc_headers *received = NULL;
  OK(dipc_sender_headers(self.sender, &received, &error_));
  check_header(received, "user", "ada");
  OK(dipc_sender_add_headers(self.sender, headers, &error_));
  dipc_headers_free(headers);

  dipc_description *description = NULL;
  OK(dipc_description_new(&description, &error_));
  OK(dipc_description_add_endpoint(description, TICKET("t"), NULL, 0, 30, DIPC_UNKNOWN, &error_));
  struct ArrowDeviceArrayStream answer;
  OK(dipc_description_to_stream(description, &answer, &error_));
  dipc_description_free(description);
  struct ArrowSchema schema;
  struct ArrowDeviceArray batch;
  CHECK_EQ(answer.get_schema(&answer, &schema), 0);
  CHECK_EQ(answer.get_next(&answer, &batch), 0);
  answer.release(&answer);
  OK(dipc_sender_start(self.sender, &schema, ARROW_DEVICE_CPU, &error_));
  schema.release(&schema);
  OK(dipc_sender_send_batch(self.sender, &batch, NULL, 0, &error_));
  OK(dipc_sender_end(self.sender, &error_));
  exchange(&self);
  OK(dipc_receiver_headers(self.receiver, &received, &error_));
  check_header(received, "user", "ada");
  OK(dipc_receiver_schema(self.receiver, &schema, &error_));
  CHECK_STR(schema.children[2]->name, "rows");
  schema.release(&schema);
  OK(dipc_receiver_next(self.receiver, &batch, &error_));
  CHECK_EQ(batch.array.length, 1);
  CHECK_EQ(((const int64_t *)batch.array.children[2]->buffers[1])[0], 30);
  CHECK_EQ(batch.array.children[3]->null_count, 1);
  batch.array.release(&batch.array);
  end(&self);
}

static void failures_are_told(void) {
  struct ArrowDeviceArray batch;
  struct ArrowSchema schema;
  pair self = ask(DIPC_BODY_PACKED, NULL, "mem:a?dipc=1");
  OK(dipc_sender_refuse(self.sender, DIPC_ERR_NOT_FOUND, "never heard of it", &error_));
  exchange(&self);
  FAILS(DIPC_ERR_NOT_FOUND, "never heard of it",
        dipc_receiver_schema(self.receiver, &schema, &error_));
  CHECK_EQ(dipc_receiver_state(self.receiver), DIPC_RECEIVER_FAILED);
  end(&self);

  self = ask(DIPC_BODY_PACKED, NULL, "mem:a?dipc=1");
  begin(&self);
  OK(dipc_sender_fail(self.sender, 4711, "the well is dry", &error_));
  exchange(&self);
  FAILS(DIPC_ERR_PROVIDER, "the well is dry", dipc_receiver_next(self.receiver, &batch, &error_));
  FAILS(DIPC_ERR_PROVIDER, "the well is dry", dipc_receiver_next(self.receiver, &batch, &error_));
  end(&self);

  self = ask(DIPC_BODY_PACKED, NULL, "mem:a?dipc=1");
  begin(&self);
  OK(dipc_receiver_cancel(self.receiver, &error_));
  CHECK_EQ(dipc_receiver_state(self.receiver), DIPC_RECEIVER_CANCELLED);
  exchange(&self);
  CHECK(dipc_sender_is_cancelled(self.sender));
  table_batch(&batch, 0, 10, NULL);
  STATUS(DIPC_ERR_CANCELLED, dipc_sender_send_batch(self.sender, &batch, NULL, 0, &error_));
  batch.array.release(&batch.array);
  end(&self);

  self = ask(DIPC_BODY_PACKED, NULL, "mem:a?dipc=1");
  begin(&self);
  OK(dipc_receiver_handle_disconnect(self.receiver, DIPC_ROLE_METADATA, "cable cut", &error_));
  FAILS(DIPC_ERR_DISCONNECTED, "cable cut", dipc_receiver_next(self.receiver, &batch, &error_));
  OK(dipc_sender_handle_disconnect(self.sender, &error_));
  CHECK_EQ(dipc_sender_state(self.sender), DIPC_SENDER_CLOSED);
  end(&self);
}

static void garbage_ends_in_an_error(void) {
  static const uint8_t garbage[] = {1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 3, 1, 4, 1, 5, 9};
  pair self = ask(DIPC_BODY_PACKED, NULL, "mem:a?dipc=1");
  begin(&self);
  STATUS(DIPC_ERR_PROTOCOL, dipc_receiver_handle_metadata(self.receiver, self.now, garbage,
                                                          sizeof garbage, &error_));
  STATUS(DIPC_ERR_PROTOCOL,
         dipc_sender_handle_tagged(self.sender, 12345, garbage, sizeof garbage, &error_));
  CHECK_EQ(dipc_sender_state(self.sender), DIPC_SENDER_CLOSED);
  int32_t class = 0;
  uint64_t tag;
  const void *const *parts;
  const size_t *lens;
  size_t count;
  while (dipc_sender_poll_transmit(self.sender, &class, &tag, &parts, &lens, &count, NULL) ==
         DIPC_OK) {
  }
  CHECK_EQ(class, DIPC_MESSAGE_DISCONNECT); /* the last message */
  end(&self);

  /* An address outside the known ranges is never read. */
  self = ask(DIPC_BODY_LIST, NULL, "mem:a");
  const int before = finalized;
  OK(dipc_receiver_add_memory(self.receiver, 1, garbage, sizeof garbage, &finalized, finalize,
                              &error_));
  STATUS(DIPC_ERR_INVALID_ARGUMENT, dipc_receiver_add_memory(self.receiver, 2, garbage, 4, NULL,
                                                             finalize, &error_));
  begin(&self);
  struct ArrowDeviceArray batch;
  table_batch(&batch, 0, 10, NULL);
  OK(dipc_sender_send_batch(self.sender, &batch, NULL, 0, &error_));
  exchange(&self);
  STATUS(DIPC_ERR_PROTOCOL, dipc_receiver_next(self.receiver, &batch, &error_));
  end(&self);
  CHECK_EQ(finalized, before + 1);
}

int main(void) {
  lending_needs_a_tag_for_frees();
  forms_and_policies_do_not_mix();
  batches_cross();
  the_window_holds_batches_back();
  a_ticket_is_described();
  failures_are_told();
  garbage_ends_in_an_error();
  return 0;
}
