package checkpoint

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/internal/checksum"
)

// Files that kubelets wrote on real nodes, published by their owners.
const (
	twoPods = `{"policyName":"static","defaultCpuSet":"0-1,6-11","entries":{` +
		`"4aec46af-22b7-4e26-babb-d15383ac9151":{"mysqld":"2-3"},` +
		`"60008d73-6f6f-4467-96c5-cd0a1eeadf23":{"mysqld2":"4-5"}},"checksum":2764424633}`
	twoContainers = `{"policyName":"static","defaultCpuSet":"0-1,6-13,18-23","entries":{` +
		`"28c11c89-3493-4972-bb67-7090b9d75e0d":{"mytestclient":"2-3,14-15",` +
		`"mytestclient2":"4-5,16-17"}},"checksum":1684933537}`
	farApart = `{"policyName":"static","defaultCpuSet":"0,10-15,25-31","entries":{` +
		`"777870b5-c64f-42f5-9296-688b9dc212ba":{"container-1":"16-24"},` +
		`"fb15e10a-b6a5-4aaa-8fcd-76c1aa64e6fd":{"container-1":"1-9"}},"checksum":318470969}`
	onePod = `{"policyName":"static","defaultCpuSet":"0-1,4-13,16-23","entries":{` +
		`"6d33c60b-5e34-4ab3-ab0c-a616627b0a94":{"mytestclient2":"2-3,14-15"}},` +
		`"checksum":641473090}`
	nobody = `{"policyName":"static","defaultCpuSet":"0-63","checksum":1058907510}`
	strict = `{"policyName":"static","defaultCpuSet":"2-19,22-39,42-59,62-79",` +
		`"checksum":3758876046}`
	noPolicy = `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`
)

func published() []string {
	return []string{twoPods, twoContainers, farApart, onePod, nobody, strict, noPolicy}
}

func TestFilesOfRealKubelets(t *testing.T) {
	for _, text := range published() {
		state, err := Decode([]byte(text))
		if err != nil {
			t.Errorf("%v\n%s", err, text)
			continue
		}
		// Our file has the same fields and checksum for older kubelets.
		ours, err := Encode(state)
		if err != nil {
			t.Fatal(err)
		}
		head := strings.TrimSuffix(text, "}")
		if !strings.HasPrefix(string(ours), head+`,"data":`) {
			t.Errorf("encoded again:\n%s\nof\n%s", ours, text)
		}
	}
	state, err := Decode([]byte(twoPods))
	if err != nil {
		t.Fatal(err)
	}
	want := State{Policy: "static", Default: cpuset.New(0, 1, 6, 7, 8, 9, 10, 11),
		Entries: map[string]map[string]cpuset.CPUSet{
			"4aec46af-22b7-4e26-babb-d15383ac9151": {"mysqld": cpuset.New(2, 3)},
			"60008d73-6f6f-4467-96c5-cd0a1eeadf23": {"mysqld2": cpuset.New(4, 5)},
		}}
	if diff := cmp.Diff(want, state, cmp.Comparer(cpuset.CPUSet.Equals)); diff != "" {
		t.Errorf("decoded, -want +got:\n%s", diff)
	}
}

// TestDataChecksum compares texts with the kubelet's checksums for them.
func TestDataChecksum(t *testing.T) {
	for text, want := range map[string]uint64{
		`{"policyName":"none","defaultCPUSet":"4-6"}`: 657950972,
		`{"policyName":"static","defaultCPUSet":"7-9","entries":{"pod":` +
			`{"container1":"4-6","container2":"1-3"}}}`: 1420829534,
	} {
		if got := checksum.Of(text); got != want {
			t.Errorf("checksum of %s is %d, want %d", text, got, want)
		}
	}
}

func TestVersion4IsWhatCounts(t *testing.T) {
	raw := `{"policyName":"static","defaultCpuSet":"0","checksum":1,` +
		`"data":"{\"policyName\":\"static\",\"defaultCPUSet\":\"7-9\",\"entries\":{\"pod\":` +
		`{\"container1\":\"4-6\",\"container2\":\"1-3\"}}}","dataChecksum":1420829534}`
	state, err := Decode([]byte(raw))
	if err != nil || state.Default.String() != "7-9" ||
		state.Entries["pod"]["container1"].String() != "4-6" {
		t.Errorf("%+v, %v", state, err)
	}
	// If the data cannot be trusted or read, the part for older kubelets is not used either.
	raw = strings.TrimSuffix(twoPods, "}") + `,"data":"{}","dataChecksum":7}`
	if _, err := Decode([]byte(raw)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("%v, want %v", err, ErrCorrupt)
	}
	raw = fmt.Sprintf(`%s,"data":"{","dataChecksum":%d}`, strings.TrimSuffix(twoPods, "}"),
		checksum.Of("{"))
	if state, err := Decode([]byte(raw)); err == nil {
		t.Errorf("data that is no JSON: %+v, want an error", state)
	}
}

func TestVersion3(t *testing.T) {
	f := fields{Policy: "static", Default: "0-1", Entries: entries{"u": {"c": "2"}},
		PodEntries: map[string]podEntry{"u": {CPUs: "2-3"}}}
	sum, err := checksumV3(f)
	if err != nil {
		t.Fatal(err)
	}
	text := `{"policyName":"static","defaultCpuSet":"0-1","entries":{"u":{"c":"2"}},` +
		`"podEntries":{"u":{"cpuSet":"2-3"}},"checksum":%d}`
	state, err := Decode(fmt.Appendf(nil, text, sum))
	if err != nil || state.PodEntries["u"].String() != "2-3" ||
		state.Entries["u"]["c"].String() != "2" {
		t.Errorf("%+v, %v", state, err)
	}
	if _, err := Decode(fmt.Appendf(nil, text, sum+1)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("%v, want %v", err, ErrCorrupt)
	}
}

// In version 4 only the data has the CPUs of whole pods: without it they would be lost.
func TestPodEntriesOfVersion4(t *testing.T) {
	const data = `{"policyName":"static","defaultCpuSet":"0","entries":{"u":{"c":"1"}},` +
		`"podEntries":{"u":{"cpuSet":"1-2"}}}`
	top := fields{Policy: "static", Default: "0", Entries: entries{"u": {"c": "1"}}}
	text := fmt.Sprintf(`{"policyName":"static","defaultCpuSet":"0","entries":{"u":{"c":"1"}},`+
		`"checksum":%d,"data":%q,"dataChecksum":%d}`, checksumV2(top), data, checksum.Of(data))
	state, err := Decode([]byte(text))
	if err != nil || state.PodEntries["u"].String() != "1-2" ||
		state.Entries["u"]["c"].String() != "1" {
		t.Errorf("%+v, %v", state, err)
	}
	if again, err := Encode(state); err != nil || string(again) != text {
		t.Errorf("encoded again: %s, %v\nwant %s", again, err, text)
	}
	_, err = Decode([]byte(strings.Replace(text, `"data"`, `"date"`, 1)))
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("without data: %v, want %v", err, ErrCorrupt)
	}
}

func TestBadFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		text    string
		corrupt bool
	}{
		"another CPU":      {strings.Replace(twoPods, "2-3", "2-4", 1), true},
		"another pod":      {strings.Replace(twoPods, "4aec46af", "4aec46ae", 1), true},
		"another pool":     {strings.Replace(twoPods, "6-11", "6-12", 1), true},
		"another policy":   {strings.Replace(noPolicy, "none", "nine", 1), true},
		"another checksum": {strings.Replace(nobody, "1058907510", "1058907511", 1), true},
		"no policy":        {`{}`, true},
		"null":             {`null`, true},
		"nothing":          {``, false},
		"CPUs as a list":   {strings.Replace(nobody, `"0-63"`, `[0,63]`, 1), false},
		"no list of CPUs":  {`{"policyName":"static","defaultCpuSet":"x","checksum":0}`, false},
		"entries of before": {`{"policyName":"static","defaultCpuSet":"0","entries":{"id":"1"}}`,
			false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode([]byte(tc.text))
			if err == nil || errors.Is(err, ErrCorrupt) != tc.corrupt {
				t.Errorf("error %v; is ErrCorrupt shall be %t", err, tc.corrupt)
			}
		})
	}
}

func TestTruncatedFiles(t *testing.T) {
	state, err := Decode([]byte(twoPods))
	if err != nil {
		t.Fatal(err)
	}
	v4, err := Encode(state)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range append(published(), string(v4)) {
		for n := range len(text) {
			if _, err := Decode([]byte(text[:n])); err == nil {
				t.Errorf("the first %d bytes were decoded: %s", n, text[:n])
			}
		}
	}
}

func TestRoundTrip(t *testing.T) {
	cpus := rapid.Custom(func(t *rapid.T) cpuset.CPUSet {
		return cpuset.New(rapid.SliceOfN(rapid.IntRange(0, 512), 1, 20).Draw(t, "cpus")...)
	})
	containers := rapid.MapOfN(rapid.String(), cpus, 1, 3)
	rapid.Check(t, func(t *rapid.T) {
		want := State{
			Policy:  rapid.SampledFrom([]string{"none", "static"}).Draw(t, "policy"),
			Default: cpus.Draw(t, "default"),
			Entries: rapid.MapOfN(rapid.String(), containers, 1, 4).Draw(t, "entries"),
		}
		raw, err := Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Encode(want)
		if err != nil || string(again) != string(raw) {
			t.Fatalf("encoded twice, %v:\n%s\n%s", err, raw, again)
		}
		got, err := Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(cpuset.CPUSet.Equals)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, text := range published() {
		f.Add([]byte(text))
	}
	f.Add([]byte(`{"policyName":"static","defaultCpuSet":"0","podEntries":{"u":{"cpuSet":"1"}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 1<<12 {
			return // long ranges of CPUs add nothing
		}
		state, err := Decode(raw)
		if err != nil {
			return
		}
		again, err := Encode(state)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(again); err != nil {
			t.Fatalf("decoded, but not after encoding again: %v\n%s", err, again)
		}
	})
}
