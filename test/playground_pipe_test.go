package test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/numalet/numalet/test/harness"
)

// A playground whose reader has gone, as head goes, ends by itself and leaves nothing, whether or not
// there is anything more to say.
func TestPlaygroundInPipe(t *testing.T) {
	t.Parallel()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, examples := range [][]string{nil, {"--examples=none"}} {
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, binary, append([]string{"playground"}, examples...)...)
		dir := t.TempDir()
		cmd.Env = append(os.Environ(), "TMPDIR="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 3 {
			if !lines.Scan() {
				t.Fatalf("it ended before it had said three lines: %v", lines.Err())
			}
		}
		_ = out.Close()
		if err := cmd.Wait(); err != nil || said.Len() > 0 {
			t.Errorf("%v: %v: %s", examples, err, said.String())
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v: %v, %v are left", examples, err, left)
		}
	}
}
