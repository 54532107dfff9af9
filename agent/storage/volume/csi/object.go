package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/internal/await"
)

// Objects reads what the API server says of drivers and pods.
type Objects interface {
	// CSIDriver returns the object of a driver; nil: there is none.
	CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
	// DriverSecret returns a secret that a persistent volume names.
	DriverSecret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	// DriverToken returns a token of the pod's service account.
	DriverToken(ctx context.Context, pod *v1.Pod, want storagev1.TokenRequest) (
		authenticationv1.TokenRequestStatus, error)
}

// driverObjects finds out what the objects of drivers say of the volumes that the book has.
type driverObjects struct {
	objects Objects // nil: there is no API server
	book    book
	pauses  await.Pauses // between requests that fail
	used    func()       // MountsConfig.Used

	mu    sync.Mutex      // guards the field below
	again map[string]bool // drivers whose volumes are published again and again
}

// object asks for a driver's object.
func (d *driverObjects) object(ctx context.Context, driver string) (object, error) {
	if d.objects == nil {
		return object{}, nil
	}
	found, err := d.objects.CSIDriver(ctx, driver)
	if err != nil {
		return object{}, operation.Unanswered{Err: err}
	}
	if found == nil {
		return object{}, nil
	}
	return object{&found.Spec}, nil
}

// lookAtDrivers finds out which drivers of volumes that earlier runs of the agent left have their volumes
// attached. Until that is known, the volumes count as attached.
func (d *driverObjects) lookAtDrivers(ctx context.Context) {
	drivers := map[string]bool{}
	for _, k := range d.book.keys((*entry).mayBeAttached) {
		drivers[k.Driver] = true
	}
	for _, driver := range slices.Sorted(maps.Keys(drivers)) {
		for times := 0; ctx.Err() == nil; times++ {
			o, err := d.object(ctx, driver)
			if err == nil {
				d.notice(driver, o)
				break
			}
			await.For(ctx, d.pauses.After(times))
		}
	}
}

// notice notes whether a driver's volumes are attached, and published again and again.
func (d *driverObjects) notice(driver string, o object) {
	d.republish(driver, o.republishes())
	if !o.attaches() && d.book.unattach(driver) {
		d.used()
	}
}

func (d *driverObjects) republish(driver string, does bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.again[driver] = does; !does {
		delete(d.again, driver)
	}
}

// Republishes reports whether a driver's volumes are published again and again, as far as that is
// known.
func (d *driverObjects) Republishes(driver string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.again[driver]
}

// MountsContexts reports whether a driver mounts volumes with SELinux contexts.
func (d *driverObjects) MountsContexts(ctx context.Context, driver string) (bool, error) {
	o, err := d.object(ctx, driver)
	return o.spec != nil && ptr.Deref(o.spec.SELinuxMount, false), err
}

// object reads a driver's CSIDriver; nil inside: there is none.
type object struct{ spec *storagev1.CSIDriverSpec }

// attaches reports whether the driver's persistent volumes are attached to nodes.
func (o object) attaches() bool { return o.spec == nil || ptr.Deref(o.spec.AttachRequired, true) }

// republishes reports whether volumes are published again and again while their pods run.
func (o object) republishes() bool {
	return o.spec != nil && ptr.Deref(o.spec.RequiresRepublish, false)
}

// recounts reports whether the driver is asked time and again how many volumes the node takes. Only then
// the node gives up a pod that is too many.
func (o object) recounts() bool {
	return o.spec != nil && ptr.Deref(o.spec.NodeAllocatableUpdatePeriodSeconds, 0) > 0
}

// lives returns why the driver cannot have such volumes, in the kubelet's words; nil: it can.
func (o object) lives(v Volume) error {
	life := storagev1.VolumeLifecycleMode(v.life())
	switch {
	case o.spec == nil && !v.Ephemeral:
		return nil
	case o.spec == nil:
		return fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", life,
			v.Driver)
	case slices.Contains(o.spec.VolumeLifecycleModes, life):
		return nil
	default:
		return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", life,
			v.Driver, o.spec.VolumeLifecycleModes)
	}
}

// gives reports whether the agent gives the volume to its pod's fsGroup.
func (o object) gives(v Volume) bool {
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if o.spec != nil {
		policy = ptr.Deref(o.spec.FSGroupPolicy, policy)
	}
	once := func(m v1.PersistentVolumeAccessMode) bool {
		return m == v1.ReadWriteOnce || m == v1.ReadWriteOncePod
	}
	switch {
	case v.ReadOnly || policy == storagev1.NoneFSGroupPolicy:
		return false
	case policy == storagev1.FileFSGroupPolicy:
		return true
	default:
		return v.FSType != "" && (v.Ephemeral || slices.ContainsFunc(v.Modes, once))
	}
}

// about returns what the driver wants to know of the pod.
func (o object) about(pod *v1.Pod, v Volume) map[string]string {
	if o.spec == nil || !ptr.Deref(o.spec.PodInfoOnMount, false) {
		return nil
	}
	return map[string]string{
		"csi.storage.k8s.io/pod.name":            pod.Name,
		"csi.storage.k8s.io/pod.namespace":       pod.Namespace,
		"csi.storage.k8s.io/pod.uid":             string(pod.UID),
		"csi.storage.k8s.io/serviceAccount.name": pod.Spec.ServiceAccountName,
		ephemeralKey:                             strconv.FormatBool(v.Ephemeral),
	}
}

// Keys under which drivers are told facts about a pod.
const (
	ephemeralKey = "csi.storage.k8s.io/ephemeral"
	tokensKey    = "csi.storage.k8s.io/serviceAccount.tokens"
)

// tokens returns the tokens that the driver wants of the pod's service account, by audience; nil:
// none. secret: they go where secrets go.
func (j job) tokens(ctx context.Context) (
	out map[string]string, secret bool, err error) {
	if j.object.spec == nil || len(j.object.spec.TokenRequests) == 0 {
		return nil, false, nil
	}
	all := map[string]authenticationv1.TokenRequestStatus{}
	for _, want := range j.object.spec.TokenRequests {
		if all[want.Audience], err = j.cfg.Objects.DriverToken(ctx, j.Pod, want); err != nil {
			return nil, false, fmt.Errorf("%s: mounter.SetUpAt failed to get service accoount token "+
				"attributes: %w", pluginName, err)
		}
	}
	text, err := json.Marshal(all)
	return map[string]string{tokensKey: string(text)},
		ptr.Deref(j.object.spec.ServiceAccountTokenInSecrets, false), err
}

// secret returns what calls are made with. field is the secret's in the volume.
func (c MountsConfig) secret(ctx context.Context, field string, ref *v1.SecretReference) (
	map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	if c.Objects == nil {
		return nil, fmt.Errorf("%s needs a secret, and there is no API server to get it from; run "+
			"the agent with --kubeconfig", field)
	}
	found, err := c.Objects.DriverSecret(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return nil, fmt.Errorf("fetching %s %s/%s failed: %s: failed to find the secret %s in the "+
			"namespace %s with error: %w", field, ref.Namespace, ref.Name, pluginName, ref.Name,
			ref.Namespace, err)
	}
	out := make(map[string]string, len(found.Data))
	for key, value := range found.Data {
		out[key] = string(value)
	}
	return out, nil
}
