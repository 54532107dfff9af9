package dra

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
)

const driverName = "gpu.example.com"

var twoClaims = []Claim{
	{Namespace: "team", Name: "a", UID: "uid-a"}, {Namespace: "team", Name: "b", UID: "uid-b"},
}

func one(devices ...*drav1.Device) *drav1.NodePrepareResourceResponse {
	return &drav1.NodePrepareResourceResponse{Devices: devices}
}

func good() *drav1.Device {
	share := "6e3b"
	return &drav1.Device{
		RequestNames: []string{"gpu/big"}, PoolName: "node-1", DeviceName: "gpu-0",
		CdiDeviceIds: []string{"example.com/gpu=0"}, ShareId: &share,
	}
}

// Each claim has its devices, or an error of its own; what is answered for a claim that nobody
// asked about is an error of the call. The first texts are the kubelet's.
func TestPrepared(t *testing.T) {
	bad := func(change func(*drav1.Device)) *drav1.NodePrepareResourceResponse {
		d := good()
		change(d)
		return one(d)
	}
	const unusable = "the answer of DRA driver gpu.example.com for ResourceClaim team/a cannot be " +
		"used: "
	for name, tc := range map[string]struct {
		a    *drav1.NodePrepareResourceResponse // beside a good one for b
		want string                             // the error's beginning
	}{
		"good":      {one(good()), ""},
		"nil":       {nil, ""},
		"no device": {one(), ""},
		"bare":      {one(&drav1.Device{}), ""},
		"failed": {&drav1.NodePrepareResourceResponse{Error: "no luck\nat all"},
			"NodePrepareResources failed for ResourceClaim a: no luck at all"},
		"devices": {one(make([]*drav1.Device, maxDevices+1)...),
			unusable + "it has 1025 devices, and may have 1024"},
		"CDI id": {bad(func(d *drav1.Device) { d.CdiDeviceIds = []string{"/dev/nvidia0"} }),
			unusable + `device gpu-0 of pool node-1: the CDI device id "/dev/nvidia0" is not one like`},
		"long CDI id": {bad(func(d *drav1.Device) {
			d.CdiDeviceIds = []string{"example.com/gpu=" + strings.Repeat("x", maxCDIName)}
		}), unusable + "device gpu-0 of pool node-1: the CDI device id"},
		"CDI ids": {bad(func(d *drav1.Device) { d.CdiDeviceIds = make([]string, maxCDI+1) }),
			unusable + "it has more than 4096 CDI device ids"},
		"requests": {bad(func(d *drav1.Device) { d.RequestNames = make([]string, maxRequests+1) }),
			unusable + "device gpu-0 of pool node-1: it names 65 requests, and may name 64"},
		"request": {bad(func(d *drav1.Device) {
			d.RequestNames = []string{strings.Repeat("r", maxRequest+1)}
		}), unusable + "device gpu-0 of pool node-1: the request's name"},
		"pool": {bad(func(d *drav1.Device) { d.PoolName = strings.Repeat("p", maxPool+1) }),
			unusable + "device gpu-0 of pool "},
		"name": {bad(func(d *drav1.Device) { d.DeviceName = strings.Repeat("d", maxName+1) }),
			unusable + "device "},
		"share": {bad(func(d *drav1.Device) { *d.ShareId = strings.Repeat("s", maxShare+1) }),
			unusable + "device gpu-0 of pool node-1: the share's id"},
	} {
		out, err := prepared(driverName, twoClaims, &drav1.NodePrepareResourcesResponse{
			Claims: map[string]*drav1.NodePrepareResourceResponse{"uid-a": tc.a, "uid-b": one(good())},
		})
		got := ""
		if e := out["uid-a"].Err; e != nil {
			got = e.Error()
		}
		if err != nil || (got == "") != (tc.want == "") || !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %v, %q, want %q", name, err, got, tc.want)
		}
		if b := out["uid-b"]; b.Err != nil || len(b.Devices) != 1 ||
			fmt.Sprint(b.Devices[0]) != "{[gpu/big] node-1 gpu-0 [example.com/gpu=0] 6e3b}" {
			t.Errorf("%s: the other claim has %+v", name, b)
		}
	}
}

// Claims that the driver skipped have the kubelet's error, as often as they are.
func TestSkipped(t *testing.T) {
	out, err := prepared(driverName, twoClaims, &drav1.NodePrepareResourcesResponse{})
	if err != nil || len(out) != 2 {
		t.Fatalf("%v, %v", out, err)
	}
	for uid, a := range out {
		if a.Err == nil || a.Err.Error() != "NodePrepareResources skipped 2 ResourceClaims" {
			t.Errorf("%s: %v", uid, a.Err)
		}
	}
	errs, err := outcomes(rpcUnprepare, twoClaims, map[string]*drav1.NodeUnprepareResourceResponse{
		"uid-b": nil,
	})
	if err != nil || errs["uid-b"] != nil || errs["uid-a"] == nil ||
		errs["uid-a"].Error() != "NodeUnprepareResources skipped 1 ResourceClaims" {
		t.Errorf("%v, %v", errs, err)
	}
	_, err = prepared(driverName, twoClaims, &drav1.NodePrepareResourcesResponse{
		Claims: map[string]*drav1.NodePrepareResourceResponse{"uid-a": nil, "uid-b": nil, "uid-c": nil},
	})
	if err == nil || err.Error() !=
		"NodePrepareResources returned result for unknown claim UID uid-c" {
		t.Errorf("an answer for another claim: %v", err)
	}
}

// Whatever a driver answers, each claim has devices within the bounds or one error of one line, or
// the call has.
func FuzzPrepared(f *testing.F) {
	for _, resp := range []*drav1.NodePrepareResourcesResponse{
		{}, {Claims: map[string]*drav1.NodePrepareResourceResponse{"uid-a": one(good()), "uid-b": nil}},
		{Claims: map[string]*drav1.NodePrepareResourceResponse{
			"uid-a": one(&drav1.Device{CdiDeviceIds: []string{"\x00", "a=b"}}),
			"x\ny":  {Error: "\x1b[2J"}}},
	} {
		raw, err := proto.Marshal(resp)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		resp := &drav1.NodePrepareResourcesResponse{}
		if proto.Unmarshal(raw, resp) != nil {
			return
		}
		out, err := prepared(driverName, twoClaims, resp)
		if err != nil {
			if len(out) > 0 || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("%v beside %q", out, err)
			}
			return
		}
		for _, c := range twoClaims {
			a, there := out[c.UID]
			switch {
			case !there:
				t.Errorf("nothing about %s", c.Name)
			case a.Err != nil && (len(a.Devices) > 0 || strings.ContainsAny(a.Err.Error(), "\n\x1b")):
				t.Errorf("%v beside %q", a.Devices, a.Err)
			}
			for _, d := range a.Devices {
				if len(d.Pool) > maxPool || len(d.Name) > maxName || len(d.CDI) > maxCDI {
					t.Errorf("%+v", d)
				}
			}
		}
	})
}
