package claims

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/internal/files"
)

// kubeletFile was written by the kubelet's own code: two claims, of which one driver has prepared
// devices, one has not answered and one wants no calls.
func kubeletFile(t *testing.T) []byte {
	t.Helper()
	raw, err := os.ReadFile("testdata/dra_manager_state")
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func (n *node) write(t *testing.T, name string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, name), raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// What a kubelet prepared is taken over, and nothing is called for pods that run.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p, q := n.pod("p", "a", "b"), n.pod("q", "a")
		n.stop()
		if err := os.Remove(filepath.Join(n.dir, KubeletFile)); err != nil {
			t.Fatal(err)
		}
		n.write(t, KubeletFile, kubeletFile(t))
		n.start(t)
		n.expect(t)
		n.expectStages(t, "a[p q] gpu=Prepared nic=Preparing; b[p] opt=Prepared")
		n.claim("a", []string{gpus, nics}, p, q)
		n.claim("b", []string{"opt.example.com"}, p)
		n.usable.Insert("opt.example.com")
		if err := n.Prepare(t.Context(), q); err != nil {
			t.Error(err)
		}
		n.expect(t, "prepare nic a") // which had not answered
		if got := n.Prepared(q.UID); len(got) != 1 || len(got[0].Devices) != 2 ||
			got[0].Devices[0].ShareID != "0a1b2c3d-0000-4000-8000-000000000001" {
			t.Errorf("prepared are %+v", got)
		}
		n.Release(p.UID)
		n.Release(q.UID)
		n.expect(t, "settled uid-p", "settled uid-q", "unprepare gpu a", "unprepare nic a")
	})
}

// What a kubelet prepared before the machine started anew is to be prepared again.
func TestTakeOverAfterReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.pod("p")
		n.pod("q")
		n.stop()
		n.write(t, KubeletFile, kubeletFile(t))
		n.booted = time.Now().AddDate(100, 0, 0) // the file has the host's time
		n.start(t)
		n.expectStages(t, "a[p q] gpu=Preparing nic=Preparing; b[p] opt=Prepared")
		n.expect(t)
	})
}

// The kubelet's file has what ours has, in its format, and is read only once a kubelet has written
// it: then its account counts, and what it does not know is gone.
func TestSwitchedBackAndForth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p, q := n.pod("p", "a", "b"), n.pod("q", "a")
		n.stop()
		n.write(t, KubeletFile, kubeletFile(t))
		n.start(t)
		var theirs, ours checkpointData
		for raw, data := range map[string]*checkpointData{
			string(kubeletFile(t)): &theirs, n.read(t, KubeletFile): &ours,
		} {
			var outer checkpoint
			if err := errors.Join(json.Unmarshal([]byte(raw), &outer),
				json.Unmarshal([]byte(outer.Data), data)); err != nil {
				t.Fatal(err)
			}
		}
		if ours.Writer != writer {
			t.Errorf("the writer is %q", ours.Writer)
		}
		ours.Writer, ours.BootID = "", ""
		if diff := cmp.Diff(theirs, ours); diff != "" {
			t.Errorf("-the kubelet's +ours:\n%s", diff)
		}
		n.claim("a", []string{gpus, nics}, p, q)
		n.claim("b", []string{"opt.example.com"}, p)
		n.usable.Insert("opt.example.com")
		if err := errors.Join(n.Prepare(t.Context(), q), n.Prepare(t.Context(), p)); err != nil {
			t.Fatal(err)
		}
		n.expect(t, "prepare nic a")
		n.restart(t) // the file is ours
		n.expectStages(t, "a[p q] gpu=Prepared nic=Prepared; b[p] opt=Prepared")
		n.stop()
		kept := strings.ReplaceAll(string(kubeletFile(t)), `\"uid-p\":{},\"uid-q\":{}`, `\"uid-q\":{}`)
		n.write(t, KubeletFile, resum(t, []byte(kept)))
		n.start(t)
		n.expectStages(t, "a[q] gpu=Prepared nic=Preparing; b[p] opt=Prepared")
		if got := n.book.records().list()[0]; len(got.Devices) != 2 || got.Users[0].Name != "q" {
			t.Errorf("what a kubelet does not record is lost: %+v", got)
		}
		n.expect(t)
	})
}

// resum corrects the checksum.
func resum(t *testing.T, raw []byte) []byte {
	t.Helper()
	var outer checkpoint
	if err := json.Unmarshal(raw, &outer); err != nil {
		t.Fatal(err)
	}
	var data checkpointData
	if err := json.Unmarshal([]byte(outer.Data), &data); err != nil {
		t.Fatal(err)
	}
	out, err := seal(data)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (n *node) read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(n.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// A claim that no driver was told of is not the kubelet's business: it would call the driver.
func TestUntoldClaimsAreNotExported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := n.pod("p", "a", "b")
		n.claim("a", []string{gpus}, pod)
		n.claim("b", []string{nics}, pod)
		n.hang[gpus], n.hang[nics] = make(chan struct{}), nil
		n.fail[nics] = unregistered{nics}
		go func() { _ = n.Prepare(t.Context(), pod) }()
		n.expect(t, "prepare gpu a", "prepare nic b")
		n.expectStages(t, "a[p] gpu=Preparing; b[p] nic=")
		got, err := decodeKubelet([]byte(n.read(t, KubeletFile)))
		if err != nil || !got.ours || len(got.list) != 1 || got.list[0].ClaimName != "a" {
			t.Errorf("exported are %+v, %v", got, err)
		}
		close(n.hang[gpus])
		synctest.Wait()
	})
}

// Files that cannot be used are moved aside and told of, and the agent goes on.
func TestUnusableFiles(t *testing.T) {
	for name, test := range map[string]struct{ file, text, want string }{
		"no JSON":   {FileName, "{", "it is not"},
		"a version": {FileName, `{"version":"v2","bootID":"","claims":[]}`, `it is of version "v2"`},
		"a line":    {FileName, `{"checksum":1,"data":{"version":"v2"}}`, "a checksum is 1"},
		"a newer one": {FileName, `{"checksum":3368899430,"data":{"version":"v3","bootID":"","claims":[]}}`,
			`it is of version "v3"`},
		"unknown": {FileName, `{"version":"v1","bootID":"","claims":[],"x":1}`, "unknown field"},
		"twice": {FileName, `{"version":"v1","bootID":"","claims":[
			{"namespace":"n","name":"a","uid":"u","users":[],"drivers":[]},
			{"namespace":"n","name":"a","uid":"v","users":[],"drivers":[]}]}`, "n/a is in it twice"},
		"no name": {FileName, `{"version":"v1","bootID":"","claims":[{"namespace":"n","name":"",
			"uid":"u","users":[],"drivers":[]}]}`, "without a namespace, a name or a UID"},
		"a stage": {FileName, `{"version":"v1","bootID":"","claims":[{"namespace":"n","name":"a",
			"uid":"u","users":[],"drivers":[{"name":"d","stage":"X","since":"2026-01-02T03:04:05Z",
			"skips":{}}]}]}`, `in stage "X"`},
		"the kubelet's": {KubeletFile, `{"Data":"{}","Checksum":1}`, "its checksum is 1"},
		"its JSON":      {KubeletFile, `[]`, "it is no checkpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, test.file)
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			m, err := New(Config{Dir: dir, BootID: "b"})
			if m == nil || !errors.Is(err, files.ErrUnusable) || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("%v, want %s", err, test.want)
			}
			if test.file == FileName && !strings.Contains(m.Recovered(), "prepared again") ||
				test.file == KubeletFile && !strings.Contains(m.Recovered(), "from "+FileName) {
				t.Errorf("recovered: %q", m.Recovered())
			}
			if aside, _ := filepath.Glob(path + ".corrupt-*"); len(aside) != 1 {
				t.Errorf("moved aside are %v", aside)
			}
			if m, err = New(Config{Dir: dir, BootID: "b"}); m == nil || err != nil {
				t.Errorf("the next start: %v", err)
			}
		})
	}
}

// A write that fails changes nothing, calls nobody and is told.
func TestRecordsCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := n.pod("p", "a")
		n.claim("a", []string{gpus}, pod)
		if err := os.RemoveAll(n.dir); err != nil {
			t.Fatal(err)
		}
		err := n.Prepare(t.Context(), pod)
		if err == nil || !strings.Contains(err.Error(), "record resource claims: ") {
			t.Errorf("error %v", err)
		}
		n.expect(t)
		n.expectStages(t, "")
		if err := os.Mkdir(n.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := n.Prepare(t.Context(), pod); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(n.dir); err != nil {
			t.Fatal(err)
		}
		n.Release(pod.UID)
		n.expect(t, "prepare gpu a")
		if err := os.Mkdir(n.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		n.expect(t, "unprepare gpu a", "settled uid-p")
	})
}
