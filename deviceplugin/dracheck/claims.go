package dracheck

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/internal/await"
)

func checkRegisters(ctx context.Context, b *bench) error { return b.connect(ctx) }

func checkVersions(ctx context.Context, b *bench) error {
	conn, err := socket.PluginClient(b.plugin.Endpoint, b.cfg.Patience, b.heard)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Patience)
	defer cancel()
	var errs error
	for service, client := range map[string]drav1.DRAPluginClient{
		drav1.DRAPluginService: drav1.NewDRAPluginClient(conn),
		drav1beta1.DRAPluginService: drav1beta1.V1Beta1ClientWrapper{
			DRAPluginClient: drav1beta1.NewDRAPluginClient(conn)},
	} {
		if !slices.Contains(b.plugin.Versions, service) {
			continue
		}
		if _, err := client.NodePrepareResources(ctx, &drav1.NodePrepareResourcesRequest{}); err != nil {
			errs = errors.Join(errs, fmt.Errorf("it lists %s, and a call fails: %w", service, err))
		}
	}
	if errs == nil && !slices.Contains(b.plugin.Versions, drav1.DRAPluginService) {
		return warning{fmt.Errorf("it does not list %s, which later kubelets call",
			drav1.DRAPluginService)}
	}
	return errs
}

func checkUnknown(ctx context.Context, b *bench) error {
	return b.unprepare(ctx, []dra.Claim{{
		Namespace: "default", Name: "numalet-never-prepared",
		UID: types.UID("00000000-0000-4000-8000-000000000000"),
	}})
}

// prepare prepares the claims, each with success.
func (b *bench) prepare(ctx context.Context) (map[types.UID]dra.Answer, error) {
	answers, err := b.node.Prepare(ctx, b.plugin.Name, b.cfg.Claims)
	for _, a := range answers {
		err = errors.Join(err, a.Err)
	}
	return answers, err
}

func (b *bench) unprepare(ctx context.Context, claims []dra.Claim) error {
	errs, err := b.node.Unprepare(ctx, b.plugin.Name, claims)
	for _, one := range errs {
		err = errors.Join(err, one)
	}
	return err
}

func checkPrepares(ctx context.Context, b *bench) (err error) {
	b.answers, err = b.prepare(ctx)
	return err
}

// checkAgain expects the answer of the first call.
func checkAgain(ctx context.Context, b *bench) error {
	again, err := b.prepare(ctx)
	if err != nil {
		return err
	}
	for _, c := range b.cfg.Claims {
		first, now := b.answers[c.UID].Devices, again[c.UID].Devices
		if !reflect.DeepEqual(first, now) {
			return fmt.Errorf("for claim %s/%s it answered %+v, and now %+v", c.Namespace, c.Name,
				first, now)
		}
	}
	return nil
}

func checkAtOnce(ctx context.Context, b *bench) error {
	return await.Each(make([]struct{}, 8), -1, func(struct{}) error { return checkAgain(ctx, b) })
}

// longestCall is how long the last of the calls that are cancelled may take before.
const longestCall = 64 * time.Millisecond

// checkCancelled cancels calls earlier and later: what a driver is doing by then is its own affair.
func checkCancelled(ctx context.Context, b *bench) error {
	for after := time.Millisecond; after <= longestCall; after *= 2 {
		brief, cancel := context.WithTimeout(ctx, after)
		_, _ = b.prepare(brief) // whatever it comes to
		cancel()
	}
	return checkAgain(ctx, b)
}

func checkAgentRestarts(ctx context.Context, b *bench) error {
	if err := b.connect(ctx); err != nil {
		return err
	}
	return checkAgain(ctx, b)
}

func checkUnprepares(ctx context.Context, b *bench) error { return b.unprepare(ctx, b.cfg.Claims) }

func checkAnew(ctx context.Context, b *bench) error {
	if _, err := b.prepare(ctx); err != nil {
		return err
	}
	return b.unprepare(ctx, b.cfg.Claims)
}

func checkCDI(_ context.Context, b *bench) error {
	dirs := b.cfg.CDI
	if dirs == nil {
		dirs = cdi.DefaultSpecDirs
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return err
	}
	found := 0
	for _, c := range b.cfg.Claims {
		for _, d := range b.answers[c.UID].Devices {
			for _, id := range d.CDI {
				if found++; cache.GetDevice(id) == nil {
					return fmt.Errorf("no CDI file in %v has %s, of claim %s/%s", dirs, id,
						c.Namespace, c.Name)
				}
			}
		}
	}
	if found == 0 {
		return skip{errors.New("the answers have no CDI device")}
	}
	return nil
}

func checkSlices(_ context.Context, b *bench) error {
	if b.cfg.Slices == nil {
		return skip{errors.New("nobody gave the driver's ResourceSlices (--slices)")}
	}
	type device struct{ pool, name string }
	there := map[device]bool{}
	for _, s := range b.cfg.Slices {
		for _, d := range s.Spec.Devices {
			if s.Spec.Driver == b.plugin.Name {
				there[device{s.Spec.Pool.Name, d.Name}] = true
			}
		}
	}
	for _, c := range b.cfg.Claims {
		for _, d := range b.answers[c.UID].Devices {
			if !there[device{d.Pool, d.Name}] {
				return fmt.Errorf("no ResourceSlice of the driver has device %q of pool %q, of claim "+
					"%s/%s", d.Name, d.Pool, c.Namespace, c.Name)
			}
		}
	}
	return nil
}

func checkHealth(ctx context.Context, b *bench) error {
	if !slices.ContainsFunc(dra.HealthServices(), func(service string) bool {
		return slices.Contains(b.plugin.Versions, service)
	}) {
		return skip{errors.New("the driver lists no health service")}
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Patience)
	defer cancel()
	select {
	case devices := <-b.health:
		if devices == nil {
			return errors.New("its stream ended")
		}
		if len(devices) == 0 {
			return warning{errors.New("its first message names no device")}
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("no message came within %s", b.cfg.Patience)
	}
}
