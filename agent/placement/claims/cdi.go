package claims

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// CDI returns the ids of the devices that the container of that name gets, each once. It has drivers
// prepare what is not prepared any more before: claims whose answers are lost, and those of whose ids
// the runtime would not find one. CDI specs are below /var/run, which does not outlive the start of a
// node that is a container, nor a restart of user space.
func (m *Manager) CDI(ctx context.Context, pod *v1.Pod, container string) ([]string, error) {
	parts, err := claim.Parts(pod, container)
	if err != nil || len(parts) == 0 {
		return nil, err
	}
	devices, err := m.book.devicesOf(pod, parts)
	var lost []called
	if err == nil {
		lost = m.cdi.lost(devices)
	}
	if err != nil || len(lost) > 0 {
		klog.FromContext(ctx).Info("Drivers prepare resource claims of a running pod again",
			"pod", klog.KObj(pod), "container", container, "notFound", len(lost), "cdi", m.cdi.dirs)
		if err := m.prepareAgain(ctx, pod, parts, lost); err != nil {
			return nil, err
		}
		if devices, err = m.book.devicesOf(pod, parts); err != nil {
			return nil, err
		}
		m.cdi.tried(devices)
	}
	var ids []string
	known := sets.New[string]()
	for _, d := range devices {
		if !known.Has(d.id) {
			known.Insert(d.id)
			ids = append(ids, d.id)
		}
	}
	return ids, nil
}

// cdiDevice is a CDI id that a driver answered for a claim.
type cdiDevice struct {
	called
	id string
}

// devicesOf returns the devices that a container gets. An error says that a claim is not prepared.
func (b *book) devicesOf(pod *v1.Pod, parts []claim.Part) (out []cdiDevice, err error) {
	for _, part := range parts {
		key := types.NamespacedName{Namespace: pod.Namespace, Name: part.Name}
		r := b.get(key)
		if r == nil || !r.has(pod.UID) || !r.prepared() {
			return nil, fmt.Errorf("unable to get claim info for ResourceClaim %s in namespace %s: "+
				"it is not prepared for the pod", part.Name, pod.Namespace)
		}
		for _, device := range r.devices() {
			if !part.Gets(device.Requests) {
				continue
			}
			for _, id := range device.CDI {
				out = append(out, cdiDevice{called{key, device.Driver}, id})
			}
		}
	}
	return out, nil
}

// prepareAgain has drivers prepare what a running pod uses. The answers of the drivers in lost do not
// count any more. A claim that no record gives to the pod is read from the API server.
func (m *Manager) prepareAgain(ctx context.Context, pod *v1.Pod, parts []claim.Part,
	lost []called) error {
	began := time.Now()
	released, leave := m.pods.enter(pod.UID)
	defer leave()
	if slices.ContainsFunc(parts, func(p claim.Part) bool {
		r := m.book.get(types.NamespacedName{Namespace: pod.Namespace, Name: p.Name})
		return r == nil || !r.has(pod.UID)
	}) {
		return m.Prepare(ctx, pod)
	}
	err := m.callToPrepare(ctx, pod, func(d *draft) (owed []called, err error) {
		if released() {
			return nil, errReleased
		}
		for _, c := range lost {
			_ = d.step(c.key, Event{Kind: Lost, Driver: c.driver, At: time.Now()}) // cannot fail
		}
		lost = nil
		for _, part := range parts {
			key := types.NamespacedName{Namespace: pod.Namespace, Name: part.Name}
			r := d.get(key)
			if r == nil || !r.has(pod.UID) {
				return nil, errReleased
			}
			for _, driver := range r.ToPrepare() {
				if !m.cfg.Drivers.Usable(driver) {
					return nil, fmt.Errorf("ResourceClaim %s has to be prepared again: %w", part.Name,
						unregistered{driver})
				}
				owed = append(owed, called{key, driver})
			}
		}
		return owed, nil
	})
	m.metrics.handled(opPrepare, began, err)
	return err
}

// specs are the CDI specs that the runtime finds.
type specs struct {
	dirs []string

	mu    sync.Mutex // guards the fields below
	cache *cdi.Cache // nil: nothing was read yet
	read  []time.Time
	// seen are the drivers of which an id was found once. blind are others whose ids were not found
	// just after they had answered: they are for a runtime that looks elsewhere.
	seen, blind sets.Set[string]
}

func newSpecs(dirs []string) *specs {
	return &specs{dirs: dirs, seen: sets.New[string](), blind: sets.New[string]()}
}

// lost returns the claims of which an id is not found, with the drivers that prepared them.
func (s *specs) lost(devices []cdiDevice) (out []called) {
	if len(s.dirs) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readLocked()
	for _, d := range devices {
		switch {
		case s.cache == nil, s.blind.Has(d.driver): // it cannot be known
		case s.cache.GetDevice(d.id) != nil:
			s.seen.Insert(d.driver)
		default:
			out = append(out, d.called)
		}
	}
	return dedupe(out)
}

// tried has drivers believed that have prepared claims again and of which still no id was ever found.
func (s *specs) tried(devices []cdiDevice) {
	lost := s.lost(devices)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range lost {
		if !s.seen.Has(c.driver) {
			s.blind.Insert(c.driver)
		}
	}
}

// readLocked reads the specs if files came or went.
func (s *specs) readLocked() {
	times := make([]time.Time, len(s.dirs))
	for i, dir := range s.dirs {
		if info, err := os.Stat(dir); err == nil {
			times[i] = info.ModTime()
		}
	}
	if s.cache != nil && slices.Equal(times, s.read) {
		return
	}
	// An error is about specs that runtimes do not use either.
	cache, err := cdi.NewCache(cdi.WithSpecDirs(s.dirs...), cdi.WithAutoRefresh(false))
	if err != nil && cache == nil {
		return
	}
	s.cache, s.read = cache, times
}
