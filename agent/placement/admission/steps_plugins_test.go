package admission

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/holder"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology"
)

// stepPlugins are plugins that come and go, with devices that fail, and that hang or refuse.
type stepPlugins struct {
	inventory atomic.Pointer[devicemanager.Inventory]
	boot      atomic.Pointer[string]
	hangs     [len(stepResources)]atomic.Bool
	refuses   [len(stepResources)]atomic.Bool
	recovered [len(stepResources)]time.Time // when it stopped hanging
	asked     atomic.Int64                  // for preferences in this step
	hung      atomic.Int64                  // questions without an answer
	changed   mailbox.Topic                 // the inventory
	released  atomic.Int64                  // calls that were answered
}

func (p *stepPlugins) Inventory() devicemanager.Inventory { return *p.inventory.Load() }

// enough is more questions than one step can be worth.
const enough = 1000

// Preferred is always the same for the same question, now and then nothing, or hangs.
func (p *stepPlugins) Preferred(ctx context.Context, q devicemanager.PreferredRequest) (
	[]string, error) {
	if p.asked.Add(1) > enough {
		<-ctx.Done() // so that the step ends
		return nil, ctx.Err()
	}
	if at := slices.Index(stepResources[:], q.Resource); p.hangs[at].Load() {
		p.hung.Add(1)
		timer := time.NewTimer(5 * time.Second)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		return nil, context.DeadlineExceeded
	}
	h := fnv.New64a()
	for _, id := range slices.Concat(q.Available, q.MustInclude) {
		_, _ = h.Write([]byte(id))
	}
	switch h.Sum64() % 5 {
	case 0:
		return nil, errors.New("no preference today")
	case 1:
		return nil, context.DeadlineExceeded
	}
	ids := slices.Clone(q.MustInclude)
	for _, id := range slices.Backward(q.Available) {
		if len(ids) < q.Size && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (p *stepPlugins) Allocate(ctx context.Context, resource string, ids []string) (
	*pluginapi.ContainerAllocateResponse, error) {
	if err := p.misbehave(ctx, resource); err != nil {
		return nil, err
	}
	return &pluginapi.ContainerAllocateResponse{Envs: map[string]string{
		"GIVEN": *p.boot.Load() + " " + strings.Join(ids, " "),
	}}, nil
}

func (p *stepPlugins) Released(ctx context.Context, resource string, _ []string,
	_ holder.Holder) error {
	err := p.misbehave(ctx, resource)
	if err == nil {
		p.released.Add(1)
	}
	return err
}

// misbehave is the error, if any, of a call to a plugin.
func (p *stepPlugins) misbehave(ctx context.Context, resource string) error {
	at := slices.Index(stepResources[:], resource)
	if !p.Inventory().Resources[resource].Connected {
		return status.Error(codes.Unavailable, "nobody is there")
	}
	if p.refuses[at].Load() {
		return errors.New("out of order")
	}
	if !p.hangs[at].Load() {
		return nil
	}
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return context.DeadlineExceeded
	}
}

// change replaces one resource; nil: it is not known any more.
func (p *stepPlugins) change(at int, r *devicemanager.Resource) {
	now := p.Inventory()
	next := devicemanager.Inventory{
		Version: now.Version + 1, Resources: maps.Clone(now.Resources),
	}
	if r == nil {
		delete(next.Resources, stepResources[at])
	} else {
		r.Generation = next.Version
		next.Resources[r.Name] = *r
	}
	p.inventory.Store(&next)
	p.changed.Publish()
}

// offer has a plugin name new devices, some of them as before.
func (p *stepPlugins) offer(r *rand.Rand, at, nodes int) {
	of := devicemanager.Resource{
		Name: stepResources[at], Connected: true,
		Options: devicemanager.Options{Preferred: r.IntN(4) == 0}, Addresses: map[string]string{},
	}
	if r.IntN(3) == 0 {
		of.Options.Released = devicemanager.ReleasedWanted
	}
	for i := range 1 + r.IntN(6) {
		d := &devicemanager.Device{
			ID: fmt.Sprint(stepResources[at][12:], "-", i), Healthy: r.IntN(8) > 0,
		}
		if r.IntN(4) > 0 {
			d.Nodes = topology.NewNodeSet(topology.NodeID(r.IntN(nodes)))
		}
		of.Devices = append(of.Devices, d)
		if at > 0 { // a driver of claims hands it out too
			of.Addresses[d.ID] = stepAddress(at-1, i)
		}
	}
	p.change(at, &of)
}

// flip changes the health of one device.
func (p *stepPlugins) flip(r *rand.Rand, at int) bool {
	of, known := p.Inventory().Resources[stepResources[at]]
	if !known || len(of.Devices) == 0 {
		return false
	}
	of.Devices = slices.Clone(of.Devices)
	i := r.IntN(len(of.Devices))
	d := *of.Devices[i]
	d.Healthy = !d.Healthy
	of.Devices[i] = &d
	p.change(at, &of)
	return true
}

// healthy reports whether "resource/id" is offered.
func (p *stepPlugins) healthy(device string) bool {
	i := strings.LastIndexByte(device, '/')
	of := p.Inventory().Resources[device[:i]]
	return of.Connected && slices.ContainsFunc(of.Devices, func(d *devicemanager.Device) bool {
		return d.ID == device[i+1:] && d.Healthy
	})
}

// ails reports whether a plugin has what the reason says.
func (p *stepPlugins) ails(at int, reason string) bool {
	of := p.Inventory().Resources[stepResources[at]]
	if reason == decide.ReasonWaitDevices && of.Connected {
		return slices.ContainsFunc(of.Devices, func(d *devicemanager.Device) bool {
			return !d.Healthy
		})
	}
	return !of.Connected || p.hangs[at].Load() || time.Since(p.recovered[at]) < 20*time.Second
}
