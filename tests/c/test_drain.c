/* A server that drains leads its clients to another one. Each server is a process of its own. */
#include "forked.h"

static forked_server other;
static const char *elsewhere[2];

static int32_t provide(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  (void)userdata, (void)request;
  table_stream(out, 2, 10, -1, NULL);
  return 0;
}

static void offer(dipc_server *server) {
  CHECK(dipc_server_is_ready(server));
  OK(dipc_server_serve(server, TICKET("table"), provide, NULL, NULL, 0, &error_));
}

/* It has the table, and gives it to nobody. */
static void offer_and_drain(dipc_server *server) {
  offer(server);
  OK(dipc_server_drain(server, elsewhere, 2, &error_));
  CHECK(!dipc_server_is_ready(server));
  CHECK_EQ(server_stat(server, DIPC_SERVER_STAT_STREAMS_SERVED), 0);
}

static void offer_and_drain_alone(dipc_server *server) {
  offer(server);
  OK(dipc_server_drain(server, NULL, 0, &error_));
}

int main(void) {
  other = fork_server(offer);
  elsewhere[0] = "shm:@dipc-c-nobody-here";
  for (int i = 0; i < 2; i++) {
    elsewhere[1] = other.uris[i];
    forked_server drains = fork_server(offer_and_drain);
    /* A process that has used the library forks no servers, so a child asks. */
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      dipc_client *client = new_client();
      for (int times = 0; times < 2; times++) {
        struct ArrowDeviceArrayStream stream = get(client, drains.uris[i], "table");
        struct ArrowDeviceArray batch;
        int batches = 0;
        while (stream.get_next(&stream, &batch) == 0 && batch.array.release) {
          batch.array.release(&batch.array);
          batches++;
        }
        CHECK_EQ(batches, 2);
        stream.release(&stream);
      }
      dipc_client_free(client);
      _exit(0);
    }
    int status = 0;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    end_server(&drains);
  }
  end_server(&other);

  /* With nowhere to go, the client hears that the server is busy, and why. */
  forked_server alone = fork_server(offer_and_drain_alone);
  dipc_client *client = new_client();
  struct ArrowDeviceArrayStream stream;
  const char *uri = alone.uris[0];
  FAILS(DIPC_ERR_BUSY, "the server drains before it stops",
        dipc_client_get(client, &uri, 1, TICKET("table"), NULL, NULL, &stream, &error_));
  dipc_client_free(client);
  end_server(&alone);
  return 0;
}
