package dipc_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"

	dipc "github.com/libdipc/libdipc/bindings/go"
)

// The guide shows the examples as they are.
func TestGuideShowsTheExamples(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "guide", "go.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)<!-- (examples/[a-z/.]+) -->\n```go\n(.*?)```\n").FindAllSubmatch(guide, -1)
	if len(blocks) != 6 || len(blocks) != bytes.Count(guide, []byte("```go\n")) {
		t.Fatalf("%d of the guide's examples name their file", len(blocks))
	}
	for _, block := range blocks {
		program, err := os.ReadFile(string(block[1]))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(program, block[2]) {
			t.Errorf("docs/guide/go.md does not show %s as it is", block[1])
		}
	}
}

// The examples do what the guide says, each in a process of its own, built in a module that is set up
// as the guide says.
func TestExamplesRun(t *testing.T) {
	serve, get, requests := buildExample(t, "serve"), buildExample(t, "get"), buildExample(t, "requests")
	const wanted = "rows: 3 bytes: unknown\ntable: empty rows: 0\nlimited: true\n[0 1 2]\n"
	printed, err := exec.CommandContext(t.Context(), requests).CombinedOutput()
	if err != nil || string(printed) != wanted {
		t.Errorf("requests prints %q and not %q, %v", printed, wanted, err)
	}
	printed, err = exec.CommandContext(t.Context(), buildExample(t, "pull")).CombinedOutput()
	if err != nil || string(printed) != "streams: 100 sum: 9000\n" {
		t.Errorf("pull prints %q, %v", printed, err)
	}
	const sent = "1: numbers has 1000 rows more\n2: numbers has 2000 rows more\n3: numbers has 3000 rows more\n" +
		"batches: 3 bytes copied: 0\n"
	printed, err = exec.CommandContext(t.Context(), buildExample(t, "put")).CombinedOutput()
	if err != nil || string(printed) != sent {
		t.Errorf("put prints %q, %v", printed, err)
	}
	printed, err = exec.CommandContext(t.Context(), buildExample(t, "exchange")).CombinedOutput()
	if err != nil || string(printed) != "rows: 4 sum: 160\n" {
		t.Errorf("exchange prints %q, %v", printed, err)
	}
	server := exec.CommandContext(testContext(t), serve, "shm:"+filepath.Join(t.TempDir(), "socket"))
	server.Stderr = os.Stderr
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	uri := strings.TrimSpace(line)
	for ticket, wanted := range map[string]string{
		"prices":    "item [\"tea\" \"coffee\"]\nprice [2.5 3.25]\n",
		"countdown": "left [3 2 1]\n",
	} {
		printed, err := exec.CommandContext(t.Context(), get, uri, ticket).Output()
		if err != nil || string(printed) != wanted {
			t.Errorf("get prints %q and not %q, %v", printed, wanted, err)
		}
	}
	printed, err = exec.CommandContext(t.Context(), get, uri, "sold out").CombinedOutput()
	if err == nil || !strings.HasPrefix(string(printed), "no such table: dipc: ") {
		t.Errorf("get prints %q, %v", printed, err)
	}
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, output); err != nil {
		t.Error(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("the server does not end well: %v", err)
	}
}

// modulePath is the path of the package, as its import has it.
var modulePath = reflect.TypeFor[dipc.Server]().PkgPath()

func buildExample(t *testing.T, name string) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	module := t.TempDir()
	for from, to := range map[string]string{
		filepath.Join("examples", name, "main.go"): "main.go", "go.mod": "go.mod", "go.sum": "go.sum",
	} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		// The example's own module, with the versions that this module uses.
		content = bytes.Replace(content, []byte("module "+modulePath+"\n"), []byte("module example\n"), 1)
		if err := os.WriteFile(filepath.Join(module, to), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range [][]string{
		{"go", "mod", "edit", "-require=" + modulePath + "@v0.0.0", "-replace=" + modulePath + "=" + here},
		{"go", "build", "-o", "program", "."},
	} {
		run := exec.CommandContext(testContext(t), command[0], command[1:]...)
		run.Dir = module
		if output, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, output)
		}
	}
	return filepath.Join(module, "program")
}
