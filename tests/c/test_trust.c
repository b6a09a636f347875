/* Who asks, and who decides: certificates over tls, and the host's authorizer, with the server in a
 * process of its own. The certificates are openssl's. */
#include <errno.h>
#include <sys/wait.h>

#include "util.h"

static char folder[64];

/* The path of a file in the test's folder; the last four stay valid. */
static const char *file(const char *name) {
  static char paths[4][128];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

static bool shell(const char *format, const char *name) {
  char command[1024];
  snprintf(command, sizeof command, format, name);
  return system(command) == 0;
}

/* An authority, and certificates for a server at 127.0.0.1 and for two clients. */
static bool make_certificates(void) {
  snprintf(folder, sizeof folder, "/tmp/dipc-trust-XXXXXX");
  CHECK(mkdtemp(folder) != NULL);
  CHECK_EQ(chdir(folder), 0);
  if (!shell("openssl ecparam -name prime256v1 -genkey -noout -out ca.key 2>%s", "log")) {
    printf("skipped: openssl is not there\n");
    return false;
  }
  CHECK(shell("openssl req -x509 -new -key ca.key -subj /CN=%s -days 9 -out ca.pem 2>>log", "ca"));
  const char *names[] = {"server", "alice", "mallory"};
  for (int i = 0; i < 3; i++) {
    const char *issue =
        "n=%s; openssl ecparam -name prime256v1 -genkey -noout -out $n.key && "
        "openssl req -new -key $n.key -subj /CN=$n -out $n.csr && "
        "echo subjectAltName=IP:127.0.0.1,DNS:$n.example >ext && openssl x509 -req -in $n.csr "
        "-CA ca.pem -CAkey ca.key -CAcreateserial -days 9 -extfile ext -out $n.pem 2>>log";
    CHECK(shell(issue, names[i]));
  }
  return true;
}

static int finalized, asked;

static void finalize(void *userdata) {
  CHECK(userdata == &asked);
  finalized++;
}

/* Alice may do everything, over shm whoever has her token; nobody sees "secret". */
static int32_t decide(void *userdata, dipc_request *request) {
  uint8_t token[16] = "";
  char subject[64] = "", ticket[64] = "";
  size_t len = 0;
  dipc_headers *headers = NULL;
  __atomic_fetch_add((int *)userdata, 1, __ATOMIC_RELAXED);
  OK(dipc_request_ticket(request, (uint8_t *)ticket, sizeof ticket, &len, &error_));
  if (dipc_request_verb(request) == DIPC_VERB_GET && strncmp(ticket, "secret", len) == 0) return 1;
  if (dipc_request_peer_certificate(request, DIPC_CERTIFICATE_SUBJECT, subject, sizeof subject,
                                    &len, NULL) == DIPC_OK) {
    char names[64], print[65];
    OK(dipc_request_peer_certificate(request, DIPC_CERTIFICATE_NAMES, names, sizeof names, &len,
                                     &error_));
    CHECK(strstr(names, "IP:127.0.0.1, DNS:") != NULL);
    OK(dipc_request_peer_certificate(request, DIPC_CERTIFICATE_FINGERPRINT, print, sizeof print,
                                     &len, &error_));
    CHECK_EQ(len, 64);
    OK(dipc_request_set_principal(request, subject, &error_));
    if (strcmp(subject, "CN=alice") == 0) return 0;
    OK(dipc_request_fail(request, DIPC_ERR_PERMISSION, "not you", &error_));
    return -1;
  }
  OK(dipc_request_headers(request, &headers, &error_));
  dipc_status found = dipc_headers_get(headers, "token", token, sizeof token, &len, NULL);
  dipc_headers_free(headers);
  if (found == DIPC_OK && strncmp((char *)token, "alice's", len) == 0) {
    OK(dipc_request_set_principal(request, "CN=alice", &error_));
    return 0;
  }
  return 1;
}

/* A table of as many rows as the name of the client is long. */
static int32_t provide(void *userdata, dipc_request *request, struct ArrowDeviceArrayStream *out) {
  (void)userdata;
  char principal[64];
  size_t len = 0;
  OK(dipc_request_principal(request, principal, sizeof principal, &len, &error_));
  table_stream(out, 1, (int64_t)len, -1, NULL);
  return 0;
}

static void run_server(int control, int out) {
  dipc_server_options *options = NULL;
  dipc_server *server = NULL;
  char uris[2][DIPC_URI_BYTES] = {"", ""}, address[64], byte;
  size_t len = 0;
  snprintf(address, sizeof address, "shm:@dipc-c-trust-%ld", (long)getpid());
  OK(dipc_server_options_new(&options, &error_));
  OK(dipc_server_options_set_tls(options, file("server.pem"), file("server.key"), &error_));
  OK(dipc_server_options_set_tls_client_ca(options, file("ca.pem"), &error_));
  OK(dipc_server_options_set_authorizer(options, decide, &asked, finalize, &error_));
  OK(dipc_server_new(options, &server, &error_));
  dipc_server_options_free(options);
  CHECK_EQ(finalized, 0);
  OK(dipc_server_listen(server, address, uris[0], DIPC_URI_BYTES, &len, &error_));
  OK(dipc_server_listen(server, "tls://127.0.0.1:0", uris[1], DIPC_URI_BYTES, &len, &error_));
  OK(dipc_server_reload_tls(server, &error_));
  OK(dipc_server_serve(server, TICKET("secret"), provide, NULL, NULL, 0, &error_));
  OK(dipc_server_serve(server, TICKET("table"), provide, NULL, NULL, 0, &error_));
  CHECK_EQ(write(out, uris, sizeof uris), (ssize_t)sizeof uris);
  while (read(control, &byte, 1) < 0 && errno == EINTR) {
  }
  dipc_server_free(server);
  CHECK(asked > 0);
  CHECK_EQ(finalized, 1);
  _exit(0);
}

static dipc_client *client_of(const char *name) {
  dipc_client_options *options = NULL;
  dipc_client *client = NULL;
  char certificate[32], key[32];
  OK(dipc_client_options_new(&options, &error_));
  OK(dipc_client_options_set_tls_ca(options, file("ca.pem"), &error_));
  if (name) {
    snprintf(certificate, sizeof certificate, "%s.pem", name);
    snprintf(key, sizeof key, "%s.key", name);
    OK(dipc_client_options_set_tls(options, file(certificate), file(key), &error_));
  }
  OK(dipc_client_new(options, &client, &error_));
  dipc_client_options_free(options);
  return client;
}

/* Gets "table" with this header, and checks that the server knows alice. */
static void check_alice(const dipc_client *client, const char *uri,
                        const dipc_get_options *options) {
  struct ArrowDeviceArrayStream stream;
  struct ArrowDeviceArray batch;
  OK(dipc_client_get(client, &uri, 1, TICKET("table"), options, NULL, &stream, &error_));
  CHECK_EQ(stream.get_next(&stream, &batch), 0);
  table_check(&batch.array, 0, (int64_t)strlen("CN=alice"));
  batch.array.release(&batch.array);
  stream.release(&stream);
  FAILS(DIPC_ERR_PERMISSION, "does not allow",
        dipc_client_get(client, &uri, 1, TICKET("secret"), options, NULL, &stream, &error_));
}

int main(void) {
  if (!make_certificates()) return 0;
  int control[2], out[2], status = 0;
  char uris[2][DIPC_URI_BYTES];
  CHECK_EQ(pipe(control), 0);
  CHECK_EQ(pipe(out), 0);
  fflush(NULL);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    close(control[1]);
    run_server(control[0], out[1]);
  }
  close(control[0]);
  CHECK_EQ(read(out[0], uris, sizeof uris), (ssize_t)sizeof uris);
  const char *shm = uris[0], *tls = uris[1];
  struct ArrowDeviceArrayStream stream;
  dipc_get_options *options = NULL;
  dipc_headers *headers = NULL;
  OK(dipc_get_options_new(&options, &error_));
  OK(dipc_headers_new(&headers, &error_));
  OK(dipc_headers_add(headers, "token", (const uint8_t *)"alice's", 7, &error_));
  OK(dipc_get_options_set_headers(options, headers, &error_));
  dipc_headers_free(headers);

  dipc_client *alice = client_of("alice"), *mallory = client_of("mallory");
  dipc_client *nobody = client_of(NULL);
  check_alice(alice, tls, NULL);
  check_alice(nobody, shm, options);
  FAILS(DIPC_ERR_PERMISSION, "not you",
        dipc_client_get(mallory, &tls, 1, TICKET("table"), options, NULL, &stream, &error_));
  FAILS(DIPC_ERR_PERMISSION, "does not allow",
        dipc_client_get(nobody, &shm, 1, TICKET("table"), NULL, NULL, &stream, &error_));
  FAILS(DIPC_ERR_PERMISSION, "asks for this side's certificate",
        dipc_client_get(nobody, &tls, 1, TICKET("table"), NULL, NULL, &stream, &error_));

  /* Only what the client may get is listed. */
  OK(dipc_client_list(alice, &tls, 1, NULL, 0, NULL, NULL, &stream, &error_));
  struct ArrowDeviceArray batch;
  CHECK_EQ(stream.get_next(&stream, &batch), 0);
  CHECK_EQ(batch.array.length, 1);
  batch.array.release(&batch.array);
  stream.release(&stream);

  dipc_client_free(alice);
  dipc_client_free(mallory);
  dipc_client_free(nobody);
  dipc_get_options_free(options);
  close(control[1]);
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
  CHECK(shell("rm -r %s", folder));
  return 0;
}
