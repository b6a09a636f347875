// Certificates, over tls.
#include <cstdlib>
#include <filesystem>
#include <string>

#include "support.hpp"

namespace {

using support::Tables;

/// An authority, and certificates of a server and of a client, in a folder of their own.
class Certificates : public Tables {
 protected:
  void SetUp() override {
    if (std::system("openssl version >/dev/null 2>&1") != 0) GTEST_SKIP() << "openssl is not there";
    std::string folder = "/tmp/dipc-cpp-tls-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    ASSERT_EQ(std::system((DIPC_TEST_CERTIFICATES " " + folder).c_str()), 0);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  [[nodiscard]] std::string file(const char* name) const { return folder_ / name; }
  [[nodiscard]] dipc::Identity identity(const std::string& name) const {
    return {file((name + ".pem").c_str()), file((name + ".key").c_str())};
  }

  std::filesystem::path folder_;
};

dipc::Result<std::int64_t> fetch(const dipc::ClientOptions& options, const std::string& uri) {
  const auto client = dipc::Client::make(options).value();
  auto stream = client.get(uri, "table");
  if (!stream) return std::move(stream).error();
  std::int64_t rows = 0;
  for (;;) {
    auto batch = stream->next();
    if (!batch) return std::move(batch).error();
    if (!*batch) return rows;
    rows += batch->get()->array.length;
  }
}

// Promise: both ends show certificates, and each says why it does not trust the other.
TEST_F(Certificates, BothEndsShowThem) {
  dipc::ServerOptions options;
  options.tls = identity("server");
  options.tls_client_ca = file("ca.pem");
  const auto server = dipc::Server::make(options).value();
  const auto uri = server.listen("tls://127.0.0.1:0").value();
  dipc::Peer peer;
  server
      .serve("table",
             [&peer](dipc::RequestRef request) {
               peer = request.peer().value();
               return support::plain_stream(2, 10);
             })
      .value();
  dipc::ClientOptions trusting;
  trusting.tls_ca = file("ca.pem");
  auto alice = trusting;
  alice.tls = identity("alice");
  EXPECT_EQ(fetch(alice, uri).value(), 20);
  server.reload_tls().value();
  EXPECT_EQ(fetch(alice, uri).value(), 20);
  EXPECT_EQ(peer.transport, "tls");
  ASSERT_TRUE(peer.certificate.has_value());
  EXPECT_EQ(peer.certificate->subject, "CN=alice");
  EXPECT_EQ(peer.certificate->names, "IP:127.0.0.1, DNS:alice.example");
  EXPECT_EQ(peer.certificate->fingerprint.size(), 64U);
  const auto refused = [&](const dipc::ClientOptions& client, const char* why) {
    const auto error = fetch(client, uri).error();
    EXPECT_EQ(error.status(), dipc::Status::permission);
    EXPECT_NE(error.text().find(why), std::string::npos) << error.text();
  };
  refused(trusting, "asks for this side's certificate");
  refused({}, "not trusted here");
  alice.tls_server_name = "elsewhere";
  refused(alice, "not for elsewhere");
}

}  // namespace
