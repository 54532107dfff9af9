package footprint

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const processMaps = `00400000-02c3d000 r-xp 00000000 fe:00 77 /usr/bin/numalet
Size:              41204 kB
Rss:               39000 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
02c3d000-04f00000 r--p 0283d000 fe:00 77 /usr/bin/numalet
Rss:               20000 kB
Anonymous:             4 kB
04f00000-05000000 rw-p 04b00000 fe:00 77 /usr/bin/numalet
Anonymous:             0 kB
05000000-05001000 r--p 04c00000 fe:00 77 /usr/bin/numalet
Anonymous:             0 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 78 /usr/lib/usr/bin/numalet
Anonymous:             0 kB
7f0000002000-7f0000003000 r--p 00000000 00:00 0
Anonymous:             0 kB
`

// Only unchanged mappings of the program's file are unmapped: not data, and not code that a
// debugger changed.
func TestUntouched(t *testing.T) {
	got, err := untouched(strings.NewReader(processMaps), "/usr/bin/numalet")
	want := []mapping{{0x400000, 0x2c3d000}, {0x5000000, 0x5001000}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%#x, %v, want %#x", got, err, want)
	}
	if got, err = untouched(strings.NewReader("nonsense\n"), "x"); err != nil || got != nil {
		t.Errorf("of nonsense: %v, %v", got, err)
	}
}

// resident returns the memory of this process of one kind (RssFile, RssAnon), in KiB.
func resident(t *testing.T, kind string) (size int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), kind+":")
	if _, err := fmt.Sscanf(rest, "%d kB", &size); err != nil {
		t.Fatal(err)
	}
	return size
}

// The process continues with less memory.
func TestLetGo(t *testing.T) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(smaps)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := untouched(f, program)
	if err != nil || len(all) == 0 {
		t.Fatalf("mappings: %v, %v", all, err)
	}
	for _, m := range all {
		if _, _, e := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_POPULATE_READ); e != 0 {
			t.Skipf("left out: this kernel maps nothing when it is told to: %v", e)
		}
	}
	before := resident(t, "RssFile")
	if err := LetGo(context.Background()); err != nil {
		t.Fatal(err)
	}
	if after := resident(t, "RssFile"); after >= before { // pages begin to come back at once
		t.Errorf("%d KiB of files before, %d after", before, after)
	}
}

// Memory that the heap no longer needs is returned.
func TestLetGoOfGarbage(t *testing.T) {
	const size = 64 << 20
	garbage := make([]byte, size)
	for i := 0; i < size; i += os.Getpagesize() {
		garbage[i] = 1
	}
	before := resident(t, "RssAnon")
	runtime.KeepAlive(garbage)
	if err := LetGo(context.Background()); err != nil {
		t.Fatal(err)
	}
	if after := resident(t, "RssAnon"); before-after < size>>11 {
		t.Errorf("%d KiB of anonymous memory before, %d after", before, after)
	}
}
