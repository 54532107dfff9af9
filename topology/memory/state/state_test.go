package state

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func sample() Contents {
	return Contents{
		PolicyName: "static",
		MachineState: NUMANodeMap{0: {
			MemoryMap: map[v1.ResourceName]*MemoryTable{v1.ResourceMemory: {
				TotalMemSize: 2048, SystemReserved: 512, Allocatable: 1536, Reserved: 512,
				Free: 1024,
			}},
			Cells: []int{},
		}},
		Entries: ContainerMemoryAssignments{"pod": {"container1": {
			{NUMAAffinity: []int{0}, Type: v1.ResourceMemory, Size: 512},
		}}},
		PodEntries: PodMemoryAssignments{},
	}
}

func podsToo() Contents {
	c := sample()
	c.PodEntries = PodMemoryAssignments{"pod": {MemoryBlocks: []Block{
		{NUMAAffinity: []int{0}, Type: v1.ResourceMemory, Size: 512},
	}}}
	return c
}

// The checksums equal those of kubelets for the same contents.
func TestChecksumsOfKubelets(t *testing.T) {
	data, err := Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	if f.Checksum != 4215593881 {
		t.Errorf("checksum %d, a kubelet has 4215593881", f.Checksum)
	}
	if f.DataChecksum != 1849615440 {
		t.Errorf("dataChecksum %d of %s, a kubelet has 1849615440", f.DataChecksum, f.Data)
	}
	if got := sumOfPods(podsToo()); got != 1278640530 {
		t.Errorf("checksum with pods %d, a kubelet has 1278640530", got)
	}
}

func TestRoundTrip(t *testing.T) {
	for name, c := range map[string]Contents{
		"empty": Contents{PolicyName: "None"}.withMaps(), "sample": sample(), "pods": podsToo(),
	} {
		t.Run(name, func(t *testing.T) {
			data, err := Encode(c)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c, got); diff != "" {
				t.Errorf("-encoded +decoded:\n%s", diff)
			}
		})
	}
}

// oldFile returns a file without data.
func oldFile(t *testing.T, c Contents, checksum uint64) []byte {
	t.Helper()
	data, err := json.Marshal(struct {
		Contents
		Checksum uint64 `json:"checksum"`
	}{c, checksum})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDecodeOldFiles(t *testing.T) {
	for _, test := range []struct {
		name     string
		contents Contents
		checksum uint64
		corrupt  bool
	}{
		{"first format", sample(), 4215593881, false},
		{"first format without checksum", sample(), 0, false},
		{"first format, wrong checksum", sample(), 4215593882, true},
		{"with pods", podsToo(), 1278640530, false},
		{"with pods, checksum without", podsToo(), 4215593881, true},
		{"with pods, no checksum", podsToo(), 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Decode(oldFile(t, test.contents, test.checksum))
			if errors.Is(err, ErrCorrupt) != test.corrupt {
				t.Fatalf("error %v, corrupt should be %v", err, test.corrupt)
			}
			if test.corrupt {
				return
			}
			if diff := cmp.Diff(test.contents, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The older part is ignored if there is data.
func TestDataIsBelieved(t *testing.T) {
	data, err := Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	damaged := strings.Replace(string(data), `"policyName":"static"`, `"policyName":"other"`, 1)
	got, err := Decode([]byte(damaged))
	if err != nil || got.PolicyName != "static" {
		t.Errorf("policy %q, error %v", got.PolicyName, err)
	}
	for _, damage := range [][2]string{
		{`\"size\":512`, `\"size\":513`}, {`"dataChecksum":1849615440`, `"x":0`},
		{`"data":`, `"y":`},
	} {
		damaged := strings.Replace(string(data), damage[0], damage[1], 1)
		if damaged == string(data) {
			t.Fatalf("%s is not in the file", damage[0])
		}
		if got, err := Decode([]byte(damaged)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("with %s: %+v, error %v", damage[1], got, err)
		}
	}
}

func TestDecodeTruncated(t *testing.T) {
	data, err := Encode(podsToo())
	if err != nil {
		t.Fatal(err)
	}
	for n := range data {
		if _, err := Decode(data[:n]); err == nil {
			t.Errorf("the first %d bytes are taken for a file", n)
		}
	}
}

func FuzzDecode(f *testing.F) {
	data, err := Encode(podsToo())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"policyName":"None","machineState":{},"checksum":0}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Decode(data)
		if err != nil {
			return
		}
		again, err := Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(again); err != nil {
			t.Fatalf("encoded again: %v", err)
		}
	})
}
