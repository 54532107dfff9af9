package dradriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/test/scratch"
)

const driverName = "toy.example.com"

// toys are devices named a, b and c. obtained counts what claims hold.
type toys struct {
	obtained map[string]int
	sick     string // the device that is unhealthy
	anew     string // the device that is another one now
	broken   error  // of Obtain for c, and of Drop
	edit     string
	calls    int // of Obtain
}

func newToys() *toys { return &toys{obtained: map[string]int{}} }

func (y *toys) List() (out List) {
	for _, name := range []string{"a", "b", "c"} {
		d := Device{Device: resourcev1.Device{Name: name}}
		if name == y.sick {
			d.Trouble = "it is sick"
		}
		out.Devices = append(out.Devices, d)
	}
	return out
}

func (y *toys) Stands(_ Record, h Held) bool { return h.Device != y.anew }

func (y *toys) Obtain(_ Records, _ Record, h *Held) error {
	if h.Device == "c" && y.broken != nil {
		return y.broken
	}
	y.calls++
	h.ID = "id-" + h.Device
	y.obtained[h.ID]++
	return nil
}

func (y *toys) Edits(r Record) (out []specs.ContainerEdits, err error) {
	for _, h := range r.Devices {
		out = append(out, specs.ContainerEdits{Env: []string{"TOY=" + h.Device + y.edit}})
	}
	return out, nil
}

func (y *toys) Drop(all []Held) error {
	for _, h := range all {
		y.obtained[h.ID]--
	}
	return nil
}

// toyDriver returns a driver of toys whose root directory is dir.
func toyDriver(t *testing.T, dir string, y *toys, client *fake.Clientset) *Driver {
	t.Helper()
	d, err := New(Config{Driver: driverName, Node: "node", Root: dir, CDI: filepath.Join(dir, "cdi"),
		Client: client, Program: "numalet-toys", Accept: func(raw []byte) error {
			return fmt.Errorf("%s is refused", raw)
		}}, y.List(), y)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func claimOf(name string, devices ...string) *resourcev1.ResourceClaim {
	out := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: types.UID("uid-" + name)}}
	out.Status.Allocation = &resourcev1.AllocationResult{}
	for _, device := range devices {
		out.Status.Allocation.Devices.Results = append(out.Status.Allocation.Devices.Results,
			resourcev1.DeviceRequestAllocationResult{Request: "one", Driver: driverName,
				Pool: "node", Device: device})
	}
	return out
}

func (d *Driver) prepare(t *testing.T, claim *resourcev1.ResourceClaim) ([]kubeletplugin.Device,
	error) {
	t.Helper()
	all, err := d.PrepareResourceClaims(t.Context(), []*resourcev1.ResourceClaim{claim})
	if err != nil {
		t.Fatal(err)
	}
	return all[claim.UID].Devices, all[claim.UID].Err
}

func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("error %v; want one with %q", err, word)
		}
	}
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if err = check(); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: %v", what, err)
}

// A claim has its devices once, however often it is prepared; what it cannot have whole it does not
// have at all.
func TestPrepare(t *testing.T) {
	dir, y := t.TempDir(), newToys()
	d := toyDriver(t, dir, y, fake.NewClientset())
	pair := claimOf("pair", "a", "b")
	first, err := d.prepare(t, pair)
	if err != nil {
		t.Fatal(err)
	}
	d = toyDriver(t, dir, y, fake.NewClientset()) // the process was started anew
	again, err := d.prepare(t, pair)
	if err != nil || fmt.Sprint(again) != fmt.Sprint(first) || y.obtained["id-a"] != 1 {
		t.Errorf("again: %v, %v; %v", again, err, y.obtained)
	}
	if got := first[1].CDIDeviceIDs; !slices.Equal(got, []string{
		"numalet.toy.example.com/claim=uid-pair-1"}) {
		t.Errorf("the second has %q", got)
	}
	_, err = d.prepare(t, claimOf("other", "a"))
	refused(t, err, "a is prepared for the claim default/pair (uid-pair)")
	y.broken = errors.New("it is broken")
	free := claimOf("free", "c")
	free.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
	for _, claim := range []*resourcev1.ResourceClaim{claimOf("both", "b", "c"), free} {
		_, err = d.prepare(t, claim)
		refused(t, err, map[string]string{"both": "b is prepared", "free": "c: it is broken"}[claim.Name])
	}
	if err := d.release(pair.UID); err != nil {
		t.Fatal(err)
	}
	_, err = d.prepare(t, claimOf("both", "b", "c"))
	refused(t, err, "device c: it is broken")
	if y.obtained["id-a"]+y.obtained["id-b"]+y.obtained["id-c"] != 0 {
		t.Errorf("left behind: %v", y.obtained)
	}
	y.broken, y.sick = nil, "c"
	d.Set(y.List(), y)
	_, err = d.prepare(t, claimOf("sick", "c"))
	refused(t, err, "c is unhealthy: it is sick")
	_, err = d.prepare(t, claimOf("none", "d"))
	refused(t, err, "d is not there any more")
	if all, err := d.Records(); err != nil || len(all) > 0 {
		t.Errorf("left behind: %v, %v", all, err)
	}
}

// A claim whose device is another one now gets that; opaque parameters that are refused are named.
func TestAnew(t *testing.T) {
	y := newToys()
	d := toyDriver(t, t.TempDir(), y, fake.NewClientset())
	for n, anew := range []string{"", "", "a"} {
		y.anew = anew
		if _, err := d.prepare(t, claimOf("one", "a")); err != nil {
			t.Fatal(n, err)
		}
	}
	if y.obtained["id-a"] != 1 || y.calls != 2 {
		t.Errorf("%v after %d calls", y.obtained, y.calls)
	}
	claim := claimOf("set", "b")
	opaque := &resourcev1.OpaqueDeviceConfiguration{Driver: driverName}
	opaque.Parameters.Raw = []byte("{}")
	claim.Status.Allocation.Devices.Config = []resourcev1.DeviceAllocationConfiguration{
		{Source: resourcev1.AllocationConfigSourceClaim,
			DeviceConfiguration: resourcev1.DeviceConfiguration{Opaque: opaque}}}
	_, err := d.prepare(t, claim)
	refused(t, err, "from the FromClaim: {} is refused")
}

// Renew rewrites what containers get, and keeps the record.
func TestRenew(t *testing.T) {
	dir, y := t.TempDir(), newToys()
	d := toyDriver(t, dir, y, fake.NewClientset())
	if _, err := d.prepare(t, claimOf("one", "a")); err != nil {
		t.Fatal(err)
	}
	before, err := d.Records()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "cdi", d.store.file("uid-one"))
	was, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, edit := range []string{"", "-2"} {
		y.edit = edit
		if err := d.Renew(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		is, statErr := os.Stat(file)
		if err != nil || statErr != nil || !strings.Contains(string(text), "TOY=a"+edit+`"`) ||
			os.SameFile(was, is) != (edit == "") {
			t.Errorf("%q: %v, %v: %s", edit, err, statErr, text)
		}
	}
	if after, err := d.Records(); err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the records were %v, are %v, %v", before, after, err)
	}
}

// A file that has the name of a record and is none is removed at the start, and harms nobody.
func TestStrangeFiles(t *testing.T) {
	d := toyDriver(t, t.TempDir(), newToys(), fake.NewClientset())
	if err := os.Mkdir(d.store.dir, 0o750); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", `{"annotations": {}}`,
		`{"annotations": {"numalet.io/claim": "{\"uid\": \"other\"}"}}`} {
		name := filepath.Join(d.store.dir, d.store.file("strange"))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := d.prepare(t, claimOf("good", "a")); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if err := d.release("uid-good"); err != nil {
			t.Error(err)
		}
		d.dropStrange()
		if left, err := os.ReadDir(d.store.dir); err != nil || len(left) > 0 {
			t.Errorf("%q: left behind: %v, %v", text, left, err)
		}
	}
}

// idle runs beside a driver whose devices do not change.
func idle(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func nodeClient() *fake.Clientset {
	return fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node-uid"}})
}

// run runs a driver until the test ends.
func run(t *testing.T, d *Driver) (socket string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx, idle) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(d.cfg.Root, "plugins_registry", d.cfg.Driver+"-reg.sock")
	eventually(t, d.cfg.Driver+" serves", func() error {
		_, err := watcher.Ask(t.Context(), path, rivalPatience, nil)
		return err
	})
	return path
}

// Records of claims that are gone are removed at the start, those of others stay.
func TestGone(t *testing.T) {
	y, client := newToys(), nodeClient()
	d := toyDriver(t, scratch.Dir(t), y, client)
	names := []string{"stays", "deleted", "again", "free"}
	for _, name := range names {
		there := claimOf(name, "a")
		there.Status.Allocation.Devices.Results[0].ShareID = new(types.UID(name))
		if _, err := d.prepare(t, there); err != nil {
			t.Fatal(err)
		}
		switch name {
		case "deleted":
			continue
		case "again":
			there.UID = "newer"
		case "free":
			there.Status.Allocation = nil
		}
		if _, err := client.ResourceV1().ResourceClaims("default").Create(t.Context(), there,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	run(t, d)
	eventually(t, "only one is left", func() error {
		all, err := d.Records()
		if _, stays := all["uid-stays"]; err != nil || len(all) != 1 || !stays {
			return fmt.Errorf("%v, %v", all, err)
		}
		return nil
	})
	if y.obtained["id-a"] != len(names) {
		t.Errorf("of the last claim the device is dropped: %v", y.obtained)
	}
}

// A second driver of the name is refused, whoever's it is; a socket that was left behind is no
// driver.
func TestRival(t *testing.T) {
	dir, client := scratch.Dir(t), nodeClient()
	registry := filepath.Join(dir, "plugins_registry")
	if err := os.MkdirAll(registry, 0o700); err != nil {
		t.Fatal(err)
	}
	dead, err := socket.Listen(filepath.Join(registry, driverName+"-reg.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	run(t, toyDriver(t, dir, newToys(), client))
	second := toyDriver(t, dir, newToys(), client)
	refused(t, second.Run(t.Context(), idle), "another numalet-toys is the driver "+driverName,
		"--dra-driver")
	lock := filepath.Join(dir, "plugins", driverName, "numalet-toys.lock")
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	refused(t, second.Run(t.Context(), idle), "a driver "+driverName+" serves this node already",
		driverName+"-reg.sock", "--dra-driver")
	second.cfg.Driver = "other.example.com"
	run(t, second)
}

// Names that the API does not take are refused.
func TestNames(t *testing.T) {
	for want, cfg := range map[string]Config{
		`--dra-driver "TOY"`: {Driver: "TOY", Node: "node"},
		"longer than 63":     {Driver: strings.Repeat("x", 64), Node: "node"},
		`--node-name ""`:     {Driver: driverName},
	} {
		_, err := New(cfg, List{}, newToys())
		refused(t, err, want)
	}
}
