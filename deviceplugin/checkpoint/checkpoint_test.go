package checkpoint

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/dump"
	"pgregory.net/rapid"
)

// Two files that kubelets of different versions wrote on real nodes.
const (
	jetson = `{"Data":{"PodDeviceEntries":[{"PodUID":"bf52b2cd-b611-4e79-86b1-280b283185c3",` +
		`"ContainerName":"check","ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["tegra"]},` +
		`"AllocResp":"Ch8KFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSBXRlZ3Jh"}],` +
		`"RegisteredDevices":{"nvidia.com/gpu":["tegra"]}},"Checksum":3660592824}`
	twoGPUs = `{"Data":{"PodDeviceEntries":[{"PodUID":"9a15d2b5-c152-46b9-96e0-d57032629e1f",` +
		`"ContainerName":"app","ResourceName":"nvidia.com/gpu","DeviceIDs":{"1":[` +
		`"GPU-9b341c59-f96b-ba85-c137-78c3652fea65","GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]},` +
		`"AllocResp":"CmsKFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSUUdQVS1jMWU5ZjI0OS1iMzdiLTgxYzItYThkOS1i` +
		`YTVjYTAyOTQ4NDEsR1BVLTliMzQxYzU5LWY5NmItYmE4NS1jMTM3LTc4YzM2NTJmZWE2NRokCg4vZGV2L252aWRp` +
		`YWN0bBIOL2Rldi9udmlkaWFjdGwaAnJ3GiYKDy9kZXYvbnZpZGlhLXV2bRIPL2Rldi9udmlkaWEtdXZtGgJydxoy` +
		`ChUvZGV2L252aWRpYS11dm0tdG9vbHMSFS9kZXYvbnZpZGlhLXV2bS10b29scxoCcncaLgoTL2Rldi9udmlkaWEt` +
		`bW9kZXNldBITL2Rldi9udmlkaWEtbW9kZXNldBoCcncaIAoML2Rldi9udmlkaWExEgwvZGV2L252aWRpYTEaAnJ3` +
		`GiAKDC9kZXYvbnZpZGlhMhIML2Rldi9udmlkaWEyGgJydw=="}],"RegisteredDevices":{"nvidia.com/gpu":[` +
		`"GPU-77a702db-e37f-3a74-d46d-c5713f66058c","GPU-9b341c59-f96b-ba85-c137-78c3652fea65",` +
		`"GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]}},"Checksum":2530956716}`
)

func TestFilesOfRealKubelets(t *testing.T) {
	for name, data := range map[string]string{
		"one device without a node": jetson, "two on node 1": twoGPUs,
	} {
		t.Run(name, func(t *testing.T) {
			entries, registered, err := Decode([]byte(data))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := entries[0].Response()
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Split(resp.GetEnvs()["NVIDIA_VISIBLE_DEVICES"], ",")
			slices.Sort(got)
			if want := entries[0].IDs(); !slices.Equal(got, want) {
				t.Errorf("the answer's environment names %q, the entry %q", got, want)
			}
			again, err := Encode(entries, registered)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(data, string(again)); diff != "" {
				t.Errorf("encoded again, -original +ours:\n%s", diff)
			}
		})
	}
}

func TestHashedTextNamesTheTypes(t *testing.T) {
	text := dump.ForHash(checkpointData{
		PodDeviceEntries:  []PodDevicesEntry{{DeviceIDs: DevicesPerNUMA{0: {"a"}}}},
		RegisteredDevices: map[string][]string{"r": {"a"}},
	})
	want := "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)[{" +
		"PodUID:(string) ContainerName:(string) ResourceName:(string) " +
		"DeviceIDs:(checkpoint.DevicesPerNUMA)map[0:[a]] AllocResp:([]uint8)<nil>}] " +
		"RegisteredDevices:(map[string][]string)map[r:[a]]}"
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("hashed text, -want +got:\n%s", diff)
	}
}

func TestCorruptFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		data    string
		corrupt bool
	}{
		"a device more":       {strings.Replace(jetson, `["tegra"]}}`, `["tegra","x"]}}`, 1), true},
		"another pod":         {strings.Replace(jetson, "bf52b2cd", "bf52b2ce", 1), true},
		"another checksum":    {strings.Replace(jetson, "3660592824", "3660592825", 1), true},
		"another answer":      {strings.Replace(jetson, "BXRlZ3Jh", "BXRlZ3Ji", 1), true},
		"nothing":             {"", false},
		"truncated":           {jetson[:len(jetson)/2], false},
		"devices as a list":   {strings.Replace(jetson, `{"-1":["tegra"]}`, `["tegra"]`, 1), false},
		"data without checks": {`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Decode([]byte(tc.data))
			if err == nil {
				t.Fatal("decoded")
			}
			if tc.corrupt && !errors.Is(err, ErrCorrupt) {
				t.Errorf("error %v is not ErrCorrupt", err)
			}
		})
	}
}

func TestRoundTrip(t *testing.T) {
	ids := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,3}-[0-9]{1,3}`), 1, 4)
	entry := rapid.Custom(func(t *rapid.T) PodDevicesEntry {
		resp, err := EncodeResponse(&v1beta1.ContainerAllocateResponse{
			Envs: rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "envs"),
		})
		if err != nil {
			t.Fatal(err)
		}
		return PodDevicesEntry{
			PodUID: rapid.String().Draw(t, "uid"), ContainerName: "c",
			ResourceName: "example.com/x",
			DeviceIDs:    rapid.MapOf(rapid.Int64Range(-1, 70), ids).Draw(t, "devices"),
			AllocResp:    resp,
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.SliceOf(entry).Draw(t, "entries")
		registered := rapid.MapOf(rapid.StringMatching(`[a-z.]+/[a-z]+`), ids).Draw(t, "registered")
		data, err := Encode(entries, registered)
		if err != nil {
			t.Fatal(err)
		}
		gotEntries, gotRegistered, err := Decode(data)
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		if diff := cmp.Diff(entries, gotEntries); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(registered, gotRegistered); diff != "" {
			t.Error(diff)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(jetson))
	f.Add([]byte(twoGPUs))
	f.Add([]byte(`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null},"Checksum":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, registered, err := Decode(data)
		if err != nil {
			return
		}
		again, err := Encode(entries, registered)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Decode(again); err != nil {
			t.Fatalf("decoded, but not after encoding again: %v\n%s", err, again)
		}
	})
}
