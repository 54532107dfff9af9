package objects

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/cluster/requests"
)

const (
	// driverAge is the greatest age of a cached CSIDriver, if the API server answers.
	driverAge = 10 * time.Second
	// maxDrivers is the number of cached CSIDrivers.
	maxDrivers = 256
)

// csiDriver is the object of a CSI driver; nil: there is none.
type csiDriver struct {
	object *storagev1.CSIDriver
	read   time.Time
}

// CSIDriver returns the object of a CSI driver; nil: there is none. If the API server does not
// answer, what was last known counts.
func (o *Objects) CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	kept, has := o.drivers.Get(name)
	known, _ := kept.(csiDriver)
	if has && time.Since(known.read) < driverAge {
		return known.object, nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Wait)
	defer cancel()
	found, err := o.cfg.Client.StorageV1().CSIDrivers().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		found = nil
	case err != nil && has:
		return known.object, nil
	case err != nil:
		return nil, fmt.Errorf("read CSIDriver %q: %w", name, requests.Short(err))
	}
	o.drivers.Add(name, csiDriver{found, time.Now()})
	return found, nil
}

// DriverSecret reads a secret that a volume names for its driver, each time.
func (o *Objects) DriverSecret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return read(ctx, o.cfg, o.cfg.Client.CoreV1().Secrets(namespace), name)
}

// DriverToken returns a token of the pod's service account for a CSI driver. It is renewed as those
// in files are.
func (o *Objects) DriverToken(ctx context.Context, pod *v1.Pod, want storagev1.TokenRequest) (
	out authenticationv1.TokenRequestStatus, err error) {
	k := tokenKey{want.Audience, ptr.Deref(want.ExpirationSeconds, defaultTokenSeconds)}
	got, _, err := o.tokens.valid(ctx, pod, k)
	if err == nil {
		out.Token, out.ExpirationTimestamp = string(got.text), metav1.NewTime(got.expires)
	}
	return out, err
}
