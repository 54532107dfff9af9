package managers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology"
)

// Devices measures the device manager with a plugin of few, many and very many devices, over real
// sockets.
func Devices(ctx context.Context) (*Table, error) {
	t := newTable("Devices",
		"From the plugin's sending until the inventory has it, the list being encoded before: "+
			"the first\n"+
			"list, and a list in which one device is unhealthy. An admission plans a container "+
			"with the\n"+
			"devices under restricted and calls Allocate. Median of the rounds, on the clock.",
		"DEVICES", "LIST", "FIRST LIST", "ONE HEALTH CHANGE", "IDS", "ONE ADMISSION")
	for _, size := range []struct {
		devices, ids int
		name         string
	}{{8, 2, "8"}, {1000, 250, "1000"}, {250_000, 1000, "250k"}} {
		took, err := deviceTimes(ctx, size.devices, size.ids)
		if err != nil {
			return nil, fmt.Errorf("%d devices: %w", size.devices, err)
		}
		t.row(fmt.Sprint(size.devices), fmt.Sprintf("%.1f KiB", float64(took.bytes)/(1<<10)),
			short(took.list), short(took.change), fmt.Sprint(size.ids), short(took.admission))
		t.Values["list_"+size.name+"_ms"] = ms(took.list)
		t.Values["health_change_"+size.name+"_ms"] = ms(took.change)
		t.Values["device_admission_"+size.name+"_ms"] = ms(took.admission)
	}
	return t, nil
}

// deviceFigures are what one size gives.
type deviceFigures struct {
	bytes                   int
	list, change, admission time.Duration
}

const deviceRounds = 9

func deviceTimes(ctx context.Context, devices, ids int) (out deviceFigures, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "nl-")
	if err != nil {
		return out, err
	}
	defer os.RemoveAll(dir)
	nodes := topology.NewNodeSet(0, 1, 2, 3, 4, 5, 6, 7)
	manager, err := deviceplugin.New(deviceplugin.Config{Dir: dir, NodeIDs: nodes})
	if err != nil {
		return out, err
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Run(ctx) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-ended)
	}()
	select {
	case <-manager.Ready():
	case <-ctx.Done():
		return out, ctx.Err()
	}
	p, err := servePlugin(ctx, dir, devices)
	if err != nil {
		return out, err
	}
	defer p.stop()
	out.bytes = proto.Size(p.lists[0])
	if err := p.register(ctx, dir); err != nil {
		return out, err
	}
	if out.list, err = p.seen(ctx, manager, 0); err != nil {
		return out, err
	}
	if out.change, err = median(func(i int) (time.Duration, error) {
		return p.seen(ctx, manager, (i+1)%2)
	}); err != nil {
		return out, err
	}
	out.admission, err = median(func(int) (time.Duration, error) {
		return admit(ctx, manager, ids)
	})
	return out, err
}

// median repeats what takes some time.
func median(measured func(i int) (time.Duration, error)) (time.Duration, error) {
	var took []time.Duration
	for i := range deviceRounds {
		d, err := measured(i)
		if err != nil {
			return 0, err
		}
		took = append(took, d)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// admit plans a container that wants so many devices, and calls Allocate for them.
func admit(ctx context.Context, manager *deviceplugin.Plugins, ids int) (time.Duration, error) {
	machine, err := invent(8, 64)
	if err != nil {
		return 0, err
	}
	amount := v1.ResourceList{benchResource: *resource.NewQuantity(int64(ids), resource.DecimalSI)}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{
		{Name: "main", Resources: v1.ResourceRequirements{Limits: amount, Requests: amount}},
	}}}
	begin := time.Now()
	view := allocation.View{
		Machine: machine, Policy: topology.Restricted, Inventory: manager.Inventory(),
	}
	plan, err := view.Plan(pod, nil)
	if err != nil {
		return 0, err
	}
	held := plan.Pod.Containers["main"].Devices
	if len(held) != 1 || len(held[0].IDs) != ids {
		return 0, cmp.Or(err,
			fmt.Errorf("the plan has %d resources, want %d devices of one", len(held), ids))
	}
	_, err = manager.Allocate(ctx, benchResource, held[0].IDs)
	return time.Since(begin), err
}
