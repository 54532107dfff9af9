package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"unicode/utf8"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/oneline"
)

// The API server's limits for the health that a driver reports (KEP-1432).
const (
	mostConditions = 16
	longestReason  = 256
	longestMessage = 1024
)

// ErrNoHealth is the error of a driver that says nothing of the health of its volumes or storage.
var ErrNoHealth = errors.New("the CSI driver says nothing of health")

// Health returns the adverse conditions that a driver reports of a persistent volume, as far as a pod
// has it.
func (m *Mounts) Health(ctx context.Context, v Volume, pod types.UID) (out []v1.VolumeHealthCondition, err error) {
	u := use{pod, v.Path, v.Block}
	req := &csipb.NodeGetVolumeHealthRequest{VolumeId: v.Handle}
	m.book.Change(v.Key, func(e *entry) {
		if _, is := e.places[m.paths.staging(v)]; is {
			req.StagingTargetPath = m.paths.staging(v)
		}
		if e.Users[u].known {
			req.VolumePublishPath = m.paths.target(u)
		}
	})
	err = m.cfg.Drivers.call(ctx, v.Driver, ifCan(csipb.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		func(ctx context.Context, c csipb.NodeClient) error {
			said, err := c.NodeGetVolumeHealth(ctx, req)
			out = volumeConditions(said.GetVolumeHealth().GetHealthStatuses())
			return err
		}))
	return out, err
}

// ifCan returns calls to drivers that can do so; else the error is ErrNoHealth.
func ifCan(so csipb.NodeServiceCapability_RPC_Type, do rpc) rpc {
	return asking(func(ctx context.Context, c csipb.NodeClient, can Capabilities) error {
		if !can[so] {
			return ErrNoHealth
		}
		return do(ctx, c)
	})
}

// volumeConditions returns the conditions that the API server takes, each once.
func volumeConditions(said []*csipb.VolumeHealth_VolumeHealthEntry) (out []v1.VolumeHealthCondition) {
	names := map[csipb.VolumeHealthErrorType]v1.VolumeHealthStatusType{
		csipb.VolumeHealthErrorType_INACCESSIBLE: v1.VolumeHealthInaccessible,
		csipb.VolumeHealthErrorType_DATA_LOSS:    v1.VolumeHealthDataLoss,
		csipb.VolumeHealthErrorType_DEGRADED:     v1.VolumeHealthDegraded,
	}
	seen := map[[2]string]bool{}
	for _, one := range said {
		status, known := names[one.GetStatus()]
		id := [2]string{string(status), one.GetReason()}
		if !known || seen[id] || !isReason(one.GetReason()) || len(out) == mostConditions {
			continue
		}
		seen[id] = true
		out = append(out, v1.VolumeHealthCondition{Status: status, Reason: one.GetReason(),
			Message: oneline.Cut(one.GetMessage(), longestMessage)})
	}
	return out
}

func isReason(text string) bool {
	return text != "" && utf8.RuneCountInString(text) <= longestReason
}

// storage has the last answer of a driver about its storage since it registered.
type storage struct {
	asking     bool
	known      bool
	conditions []storagev1.StorageHealthCondition
}

// beginStorage returns where a driver's answer goes; nil: it is being asked, or not registered.
func (d *Drivers) beginStorage(driver string) *storage {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.drivers[driver]
	if one == nil || one.storage.asking {
		return nil
	}
	one.storage.asking = true
	return one.storage
}

// endStorage takes an answer, and reports whether it is news. An error changes nothing, and so does
// the answer of a driver that has left meanwhile.
func (d *Drivers) endStorage(driver string, asked *storage,
	said []storagev1.StorageHealthCondition, err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	asked.asking = false
	if now := d.drivers[driver]; now == nil || now.storage != asked || err != nil {
		return false
	}
	d.metrics.forgetStorage(driver)
	for _, c := range said {
		d.metrics.storage.WithLabelValues(driver, string(c.Status), c.Reason).Set(1)
	}
	news := !asked.known || !SameStorage(asked.conditions, said)
	asked.known, asked.conditions = true, said
	return news
}

// StorageHealth returns the adverse conditions that a driver reported of its storage; false: it has
// not said anything yet.
func (d *Drivers) StorageHealth(driver string) ([]storagev1.StorageHealthCondition, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one := d.drivers[driver]; one != nil {
		return one.storage.conditions, one.storage.known
	}
	return nil, false
}

// AskStorage has all drivers asked for the health of their storage that are not being asked. It does
// not wait. Changed is called if one says something else.
func (d *Drivers) AskStorage() {
	for _, one := range d.Nodes() {
		asked := d.beginStorage(one.Driver)
		if asked == nil {
			continue
		}
		d.tasks.Go(func(ctx context.Context) {
			said, err := d.storageOf(ctx, one.Driver)
			if d.endStorage(one.Driver, asked, said, err) {
				d.changed()
			}
		})
	}
}

// SameStorage reports whether two lists have the same conditions but for their messages and times.
func SameStorage(a, b []storagev1.StorageHealthCondition) bool {
	set := func(all []storagev1.StorageHealthCondition) map[[4]string]bool {
		out := map[[4]string]bool{}
		for _, c := range all {
			out[[4]string{string(c.Status), c.Reason, string(ptr.Deref(c.AccessMode, "")),
				string(ptr.Deref(c.VolumeMode, ""))}] = true
		}
		return out
	}
	return maps.Equal(set(a), set(b))
}

// storageOf asks a driver for the health of its storage.
func (d *Drivers) storageOf(ctx context.Context, driver string) (out []storagev1.StorageHealthCondition, err error) {
	err = d.call(ctx, driver, ifCan(csipb.NodeServiceCapability_RPC_GET_STORAGE_HEALTH,
		func(ctx context.Context, c csipb.NodeClient) error {
			said, err := c.NodeGetStorageHealth(ctx, &csipb.NodeGetStorageHealthRequest{})
			if err == nil {
				out, err = storageConditions(said.GetBackendHealth())
			}
			return err
		}))
	return out, err
}

// storageConditions refuses what the kubelet refuses.
func storageConditions(said []*csipb.NodeGetStorageHealthResponse_StorageBackendHealth) (
	out []storagev1.StorageHealthCondition, err error) {
	if len(said) > mostConditions {
		return nil, fmt.Errorf("NodeGetStorageHealth returned %d conditions, maximum is %d", len(said), mostConditions)
	}
	names := map[csipb.StorageHealthErrorType]storagev1.StorageHealthStatusType{
		csipb.StorageHealthErrorType_STORAGE_UNREACHABLE: storagev1.StorageUnreachable,
		csipb.StorageHealthErrorType_STORAGE_DEGRADED:    storagev1.StorageDegraded,
	}
	for i, one := range said {
		status, known := names[one.GetStatus()]
		if !known || !isReason(one.GetReason()) {
			continue
		}
		c := storagev1.StorageHealthCondition{Status: status, Reason: one.GetReason(),
			Message: oneline.Cut(one.GetMessage(), longestMessage)}
		if of := one.GetVolumeCapability(); of != nil {
			if c.AccessMode, c.VolumeMode, err = modesOf(of); err != nil {
				return nil, fmt.Errorf("NodeGetStorageHealth condition %d has invalid volume capability: %w", i, err)
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// modesOf returns the API's names of what a capability is about.
func modesOf(c *csipb.VolumeCapability) (*v1.PersistentVolumeAccessMode, *v1.PersistentVolumeMode, error) {
	volume := v1.PersistentVolumeFilesystem
	switch {
	case c.GetBlock() != nil:
		volume = v1.PersistentVolumeBlock
	case c.GetMount() == nil:
		return nil, nil, errors.New("access type is required")
	}
	if c.GetAccessMode() == nil {
		return nil, nil, errors.New("access mode is required")
	}
	var access v1.PersistentVolumeAccessMode
	switch c.GetAccessMode().GetMode() {
	case csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csipb.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		access = v1.ReadWriteOnce
	case csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		access = v1.ReadWriteOncePod
	case csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
		access = v1.ReadOnlyMany
	case csipb.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER, csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		access = v1.ReadWriteMany
	default:
		return nil, nil, fmt.Errorf("unsupported access mode %q", c.GetAccessMode().GetMode())
	}
	return &access, &volume, nil
}

// forgetStorage forgets what a driver said of its storage. Without a registry there is nothing.
func (i *instruments) forgetStorage(driver string) {
	if i.storage.IsCreated() {
		i.storage.DeletePartialMatch(map[string]string{"driver_name": driver})
	}
}
