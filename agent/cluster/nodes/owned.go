package nodes

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/files"
)

// OwnedFile is the name of the file, below the root directory, with the names of the device
// resources that the agent put into the node's status.
const OwnedFile = "numalet_resources"

const maxOwnedFile = 1 << 20

// Owned knows which resources in the node's status come from the agent, also from earlier runs:
// these are removed when they are dead, and other resources never are.
type Owned struct {
	grace time.Duration
	began time.Time

	mu    sync.Mutex // guards the fields below
	names map[v1.ResourceName]bool
	saved *files.Record[[]v1.ResourceName]
}

// OpenOwned reads the resources of earlier runs. Their plugins have grace to come back. The error
// says why the file was moved aside; the result can be used.
func OpenOwned(root string, grace time.Duration) (*Owned, error) {
	path := filepath.Join(root, OwnedFile)
	names, err := files.LoadJSON[[]v1.ResourceName](path, maxOwnedFile, time.Now())
	o := &Owned{grace: grace, began: time.Now(), names: map[v1.ResourceName]bool{},
		saved: files.NewRecord(path, maxOwnedFile, names)}
	for _, name := range names {
		o.names[name] = true
	}
	if err != nil {
		err = fmt.Errorf("read which resources are ours: %w; resources of plugins that are gone stay on "+
			"the node until somebody removes them", err)
	}
	return o, err
}

// Devices returns what the node's status says of an inventory. A new resource is written to the
// disk before it is reported, if possible; a failed write is repeated with each call, every few
// seconds. An owned resource that is not in the inventory has nothing allocatable.
func (o *Owned) Devices(inventory devicemanager.Inventory) nodestatus.Devices {
	d := nodestatus.Devices{Capacity: v1.ResourceList{}, Allocatable: v1.ResourceList{}}
	inventory.Count(d.Capacity, d.Allocatable)
	for _, name := range inventory.Gone {
		if _, back := inventory.Resources[name]; back {
			continue
		}
		delete(d.Capacity, v1.ResourceName(name))
		delete(d.Allocatable, v1.ResourceName(name))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for name := range d.Capacity {
		o.names[name] = true
	}
	o.saveLocked()
	for name := range o.names {
		_, live := d.Capacity[name]
		gone := slices.Contains(inventory.Gone, string(name))
		switch {
		case live:
		case gone || time.Since(o.began) > o.grace:
			d.Dead = append(d.Dead, name)
		default:
			d.Allocatable[name] = *resource.NewQuantity(0, resource.DecimalSI)
		}
	}
	slices.Sort(d.Dead)
	return d
}

// Wrote records that the node's status no longer has the dead resources: others may put them there
// now.
func (o *Owned) Wrote(d nodestatus.Devices) {
	if len(d.Dead) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range d.Dead {
		delete(o.names, name)
	}
	o.saveLocked()
}

func (o *Owned) saveLocked() {
	names := slices.AppendSeq([]v1.ResourceName{}, maps.Keys(o.names))
	slices.Sort(names)
	if slices.Equal(names, o.saved.Get()) {
		return
	}
	if err := o.saved.Set(names); err != nil {
		klog.Background().Error(err, "Which resources are ours is not on the disk and is written "+
			"again with the next status; after a restart those of plugins that are gone would stay on "+
			"the node", "file", OwnedFile)
	}
}
