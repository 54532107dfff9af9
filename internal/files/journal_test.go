package files

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// kept is a journal and the first line of the state that it would begin anew with.
type kept struct {
	*Journal
	t     *testing.T
	first string
	err   error // of making that line
}

func newKept(t *testing.T) *kept {
	k := &kept{t: t, first: "first\n"}
	k.Journal = NewJournal(filepath.Join(t.TempDir(), "journal"), Bounds{First: 8, Slack: 5})
	t.Cleanup(k.Close)
	return k
}

// records records a line, and checks what the file has then.
func (k *kept) records(line string, fails error, want string) {
	k.t.Helper()
	err := k.Record([]byte(line), true, func() ([]byte, error) { return []byte(k.first), k.err })
	if !errors.Is(err, fails) {
		k.t.Errorf("%q: %v, want %v", line, err, fails)
	}
	if got, err := os.ReadFile(k.Path); err != nil || string(got) != want {
		k.t.Errorf("after %q the file has %q, %v, want %q", line, got, err, want)
	}
}

// The file is begun anew before it exceeds twice its first line and the slack; of a first line
// beyond its bound twice the bound counts.
func TestJournalHasBounds(t *testing.T) {
	k := newKept(t)
	k.records("a\n", nil, "first\n")
	k.records("12345\n", nil, "first\n12345\n")
	k.records("1234\n", nil, "first\n12345\n1234\n")
	k.first = "longer than 8 bytes\n"
	k.records("b\n", nil, k.first)
	k.records("1\n", nil, k.first) // it has 20 of at most 2*8+5
	k.first = "f\n"
	k.records("22\n", nil, "f\n")
	k.records("333\n", nil, "f\n333\n")
}

// A change that fails leaves the file as it was, and so does one with a file of somebody else's.
func TestJournalStays(t *testing.T) {
	k, broken := newKept(t), errors.New("broken")
	k.records("a\n", nil, "first\n")
	k.Sync = func(*os.File) error { return broken }
	k.records("b\n", broken, "first\n")
	k.Sync, k.err = (*os.File).Sync, broken
	k.records("c\n", broken, "first\n")
	k.err = nil
	k.records("c\n", nil, "first\n")
	k.records("d\n", nil, "first\nd\n")
	if err := os.WriteFile(k.Path, []byte("another's\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	k.err = broken
	k.records("e\n", broken, "another's\n")
	k.err = nil
	k.records("e\n", nil, "first\n")
}

// A line's checksum is that of the data as it stands in the line.
func TestEncodeLine(t *testing.T) {
	raw, err := EncodeLine(`"version":3,`, map[string]string{"a": "<b>"})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"version":3,"checksum":3952161497,"data":{"a":"\u003cb\u003e"}}` + "\n"
	var line Line
	err = json.Unmarshal(raw, &line)
	if err != nil || line.Sum() != line.Checksum || line.Version != 3 {
		t.Errorf("%s: %+v, %v", raw, line, err)
	}
	if string(raw) != want {
		t.Errorf("%s, want %s", raw, want)
	}
}
