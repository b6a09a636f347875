class Libdipc < Formula
  desc "Move Apache Arrow tables between processes without serialising them"
  homepage "https://github.com/libdipc/libdipc"
  url "https://github.com/libdipc/libdipc/releases/download/v0.1.0/libdipc-0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "Apache-2.0"
  head "https://github.com/libdipc/libdipc.git", branch: "main"

  depends_on "cmake" => :build
  depends_on "rust" => :build
  depends_on :linux

  def install
    system "cmake", "-S", ".", "-B", "build", *std_cmake_args
    system "cmake", "--build", "build"
    # All but the debug information.
    ["runtime", "dev", "tools"].each do |component|
      system "cmake", "--install", "build", "--component", component
    end
  end

  test do
    (testpath/"test.c").write <<~C
      #include <dipc.h>
      #include <stdio.h>
      int main(void) {
        puts(dipc_version_string());
        return 0;
      }
    C
    system ENV.cc, "test.c", "-I#{include}", "-L#{lib}", "-ldipc", "-o", "test"
    assert_equal version.to_s, shell_output("./test").strip
    assert_match version.to_s, shell_output("#{bin}/dipc --version")
  end
end
