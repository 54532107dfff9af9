package devicemanager

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/lifecyclev1"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology"
)

// Bounds of a question for places: its deadline, and the number of devices.
const (
	placesDeadline = QuestionDeadline
	mostPlaces     = 1 << 14
)

// places asks for the PCI addresses of devices; false: the plugin does not say. Addresses that are
// none are left out.
func (l *link) places(ctx context.Context, s linkSettings, ids []string) (map[string]string, bool) {
	asking, cancel := context.WithTimeout(ctx, placesDeadline)
	defer cancel()
	began := time.Now()
	resp, err := lifecyclev1.NewLifecycleClient(l.conn).Places(asking,
		&lifecyclev1.PlacesRequest{DeviceIds: ids})
	if ctx.Err() != nil {
		return nil, false
	}
	l.called(s.metrics, rpcPlaces, time.Since(began), err)
	if err != nil {
		klog.FromContext(ctx).Info("Device plugin does not say where devices are", "devices", Few(ids),
			"err", err)
		return nil, false
	}
	out := map[string]string{}
	for _, id := range ids {
		said := resp.GetPlaces()[id].GetPciAddress()
		address, ok := topology.ParsePCIAddress(said)
		switch {
		case ok:
			out[id] = address
		case said != "":
			klog.FromContext(ctx).Info("Device plugin names a PCI address that is none", "device",
				oneline.Of(id), "address", oneline.Of(said), "want", "one as 0000:3b:00.0")
		}
	}
	return out, true
}

// locator knows where the devices of a session are. It asks about each device until it is told.
type locator struct {
	asked     map[string]bool
	addresses map[string]string // handed out, never written to
}

// of returns the addresses of the devices, by id. It asks about at most mostPlaces at once; those that
// are left, and those of which the plugin did not say, come with the next list.
func (w *locator) of(devices []*Device, ask func(ids []string) (map[string]string, bool)) map[string]string {
	var ids []string
	for _, d := range devices {
		if !w.asked[d.ID] && len(ids) < mostPlaces {
			ids = append(ids, d.ID)
		}
	}
	if len(ids) == 0 && len(w.asked) <= len(devices) {
		return w.addresses
	}
	var said map[string]string
	ok := true
	if len(ids) > 0 {
		said, ok = ask(ids)
	}
	fresh := sets.New[string]()
	if ok {
		fresh.Insert(ids...)
	}
	next := locator{asked: map[string]bool{}}
	for _, d := range devices {
		if fresh.Has(d.ID) || w.asked[d.ID] {
			next.asked[d.ID] = true
		}
		address := cmp.Or(said[d.ID], w.addresses[d.ID])
		if address == "" {
			continue
		}
		if next.addresses == nil {
			next.addresses = map[string]string{}
		}
		next.addresses[d.ID] = address
	}
	*w = next
	return w.addresses
}
