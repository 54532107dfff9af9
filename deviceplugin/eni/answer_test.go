package eni

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// find returns interfaces of a simulated host.
func find(t *testing.T, ids ...string) (all []Interface) {
	t.Helper()
	for _, i := range factsOf(t, "rdma").Interfaces {
		if slices.Contains(ids, i.ID) {
			all = append(all, i)
		}
	}
	if len(all) != len(ids) {
		t.Fatalf("of %q there are %+v", ids, all)
	}
	return all
}

func TestAnswer(t *testing.T) {
	got, err := answer("example.com/rdma-nic", find(t, "0000:81:00.1", "0000:81:00.2", "veth1234"),
		ByNetwork)
	if err != nil {
		t.Fatal(err)
	}
	const about = "PCIDEVICE_EXAMPLE_COM_RDMA_NIC_INFO"
	var info map[string]any
	if err := json.Unmarshal([]byte(got.Envs[about]), &info); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"0000:81:00.1": map[string]any{
			"generic": map[string]any{"deviceID": "0000:81:00.1"},
			"netdev":  map[string]any{"name": "ens8f0v0", "mac": "b8:ce:f6:00:00:06"},
			"rdma": map[string]any{"rdma_devices": "mlx5_1", "umad": "/dev/infiniband/umad1",
				"uverbs": "/dev/infiniband/uverbs1", "issm": "/dev/infiniband/issm1"},
		},
		"0000:81:00.2": map[string]any{
			"generic": map[string]any{"deviceID": "0000:81:00.2"},
			"netdev":  map[string]any{"name": "ens8f0v1", "mac": "b8:ce:f6:00:00:07"},
		},
	}
	if diff := cmp.Diff(want, info); diff != "" {
		t.Errorf("%s: want (-), got (+)\n%s", about, diff)
	}
	delete(got.Envs, about)
	if diff := cmp.Diff(map[string]string{
		"PCIDEVICE_EXAMPLE_COM_RDMA_NIC": "0000:81:00.1,0000:81:00.2",
		"ENI_EXAMPLE_COM_RDMA_NIC_NAMES": "ens8f0v0,ens8f0v1,veth1234",
		"ENI_EXAMPLE_COM_RDMA_NIC_MACS":  "b8:ce:f6:00:00:06,b8:ce:f6:00:00:07,5e:00:00:00:00:0b",
	}, got.Envs); diff != "" {
		t.Errorf("environment: want (-), got (+)\n%s", diff)
	}
	var nodes []string
	for _, d := range got.Devices {
		if d.HostPath != d.ContainerPath || d.Permissions != "rw" {
			t.Errorf("device node %v", d)
		}
		nodes = append(nodes, d.HostPath)
	}
	if !slices.Equal(nodes, []string{"/dev/infiniband/issm1", "/dev/infiniband/umad1",
		"/dev/infiniband/uverbs1"}) || got.CdiDevices != nil {
		t.Errorf("device nodes %q, CDI %v", nodes, got.CdiDevices)
	}
}

// CDI devices in the answer name what the runtime is to move, and the spec describes them.
func TestRuntimeMoves(t *testing.T) {
	const resource = "example.com/eni"
	all := find(t, "0000:00:06.0", "veth1234")
	got, err := answer(resource, all, ByRuntime)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	o := &outside{dir, filepath.Join(dir, "infos"), ByRuntime, map[string]string{}}
	if err := o.write(resource, all); err != nil {
		t.Fatal(err)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []string{"eth1", "veth1234"} {
		d := cache.GetDevice(got.CdiDevices[n].Name)
		if d == nil || d.ContainerEdits.NetDevices[0].HostInterfaceName != want ||
			d.ContainerEdits.NetDevices[0].Name != want || d.GetSpec().Version != "1.1.0" {
			t.Errorf("%s is %+v, want %s", got.CdiDevices[n].Name, d, want)
		}
	}
	if err := o.write(resource, nil); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(dir + "/*/*"); len(left) > 0 || err != nil {
		t.Errorf("of no interfaces there is %q, %v", left, err)
	}
	if left, err := filepath.Glob(dir + "/*.json"); len(left) > 0 || err != nil {
		t.Errorf("of no interfaces there is %q, %v", left, err)
	}
}

// Device-info files follow what is offered; those of other resources stay.
func TestDeviceInfos(t *testing.T) {
	dir := t.TempDir()
	o := &outside{dir, dir, ByNetwork, map[string]string{}}
	const other = "example.com-eni-ip-0000:00:06.0-device.json"
	put(t, filepath.Join(dir, other), "{}")
	put(t, filepath.Join(dir, "example.com-eni-0000:ff:00.0-device.json"), "{}") // from an earlier run
	if err := o.write("example.com/eni", find(t, "0000:81:00.1", "veth1234")); err != nil {
		t.Fatal(err)
	}
	const name = "example.com-eni-0000:81:00.1-device.json"
	text, err := os.ReadFile(filepath.Join(dir, name))
	want := `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:81:00.1",` +
		`"rdma-device":"mlx5_1","pf-pci-address":"0000:81:00.0"}}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v\nwant %s", text, err, want)
	}
	if got := names(t, dir); !slices.Equal(got, []string{name, other}) {
		t.Errorf("there are %q", got)
	}
	if err := o.write("example.com/eni", find(t, "0000:81:00.2")); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got,
		[]string{"example.com-eni-0000:81:00.2-device.json", other}) {
		t.Errorf("then there are %q", got)
	}
	put(t, filepath.Join(dir, name, "in", "the way"), "")
	if err := o.write("example.com/eni", find(t, "0000:81:00.1")); err == nil {
		t.Error("nobody is told that a file cannot be written")
	}
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A device names its NUMA node, if it has one.
func TestDeviceTopology(t *testing.T) {
	nodes := func(id string) []*v1beta1.NUMANode {
		return device(Record{Home: find(t, id)[0]}, "").GetTopology().GetNodes()
	}
	if n := nodes("0000:81:00.1"); len(n) != 1 || n[0].GetID() != 1 {
		t.Errorf("on nodes %v", n)
	}
	if n := nodes("0000:40:01.0"); n != nil {
		t.Errorf("without a node it is on %v", n)
	}
}
