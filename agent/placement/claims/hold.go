package claims

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/await"
)

// Pods lists the node's pods by what they do with resource claims.
type Pods struct {
	// Active has the pods that may use claims: known pods whose containers have not all ended, and pods
	// that run.
	Active sets.Set[types.UID]
	// Running has the known pods of which a sandbox or a container runs. Their claims are prepared.
	Running []*v1.Pod
}

// holdTries is how often a running pod's claims are read that the API server answers for, and that
// the pod could not use: it is ending, and they are gone.
const holdTries = 3

// holdPauses separate looks at the pods until all of them are known, and readings of claims.
var holdPauses = await.Pauses{First: soon, Last: time.Second}

// hold records what running pods use and no record says, as the API server has it: the records are
// lost, and other pods that use the same claims must not have them unprepared. It returns when each
// pod's claims were read, or do not exist any more.
func (m *Manager) hold(ctx context.Context, pods func() (Pods, bool)) {
	var running []*v1.Pod
	for n := 0; ; n++ {
		all, known := pods()
		if running = all.Running; known {
			break
		}
		if !await.For(ctx, holdPauses.After(n)) {
			return
		}
	}
	var lacking []holding
	var brief []*v1.Pod
	for _, pod := range running {
		switch users, devices := m.book.knows(pod); {
		case !users:
			released, leave := m.pods.enter(pod.UID)
			lacking = append(lacking, holding{pod, released, leave})
		case !devices:
			brief = append(brief, pod)
		}
	}
	await.All(lacking, sideBySide, func(h holding) struct{} {
		defer h.leave()
		m.holdPod(ctx, h.Pod, func(d *draft, uses []Use) error { return d.hold(h, uses) })
		return struct{}{}
	})
	close(m.held)
	await.Wake(m.pods.wake)
	for _, pod := range brief {
		m.holdPod(ctx, pod, func(d *draft, uses []Use) error { return d.describe(pod, uses) })
	}
}

// holding is a running pod whose claims are being recorded. released reports whether the pod needs
// them no longer.
type holding struct {
	*v1.Pod
	released func() bool
	leave    func()
}

// knows reports whether each claim of the pod has it as a user, and whether the allocation of each is
// recorded, which a kubelet's file does not have.
func (b *book) knows(pod *v1.Pod) (users, devices bool) {
	refs, err := claim.Refs(pod)
	if err != nil {
		return true, true // it was never admitted
	}
	users, devices = true, true
	for _, ref := range refs {
		r := b.get(types.NamespacedName{Namespace: pod.Namespace, Name: ref.Name})
		users = users && r != nil && r.has(pod.UID)
		devices = devices && r != nil && (len(r.Devices) > 0 || len(r.Drivers) == 0)
	}
	return users, devices
}

// holdPod reads the claims of a running pod until that succeeds, or the API server says repeatedly
// why the pod cannot use them, and records them.
func (m *Manager) holdPod(ctx context.Context, pod *v1.Pod, record func(*draft, []Use) error) {
	log := klog.LoggerWithValues(klog.FromContext(ctx), "pod", klog.KObj(pod), "podUID", pod.UID)
	var err error
	for n, refused := 0, 0; refused < holdTries; n++ {
		var now found
		if now = m.follow.read(ctx, pod); now.good {
			err = m.book.apply(func(d *draft) error { return record(d, now.uses) })
			break
		}
		if err = now.err; !isUnanswered(err) {
			refused++
		}
		if !await.For(ctx, holdPauses.After(n)) {
			return
		}
	}
	if err != nil {
		log.Info("The resource claims of a running pod are not recorded in full; what is missing is "+
			"asked for again before a container needs it", "err", err)
		return
	}
	log.Info("Recorded the resource claims of a running pod")
}

// hold makes a running pod a user of its claims. If it needs them no longer by now, its drivers still
// have something to unprepare.
func (d *draft) hold(h holding, uses []Use) error {
	for _, u := range uses {
		key := types.NamespacedName{Namespace: u.Namespace, Name: u.Name}
		e := Event{Kind: Held, At: time.Now(), Use: u, User: User{UID: h.UID, Name: h.Name}}
		err := d.step(key, e)
		if e.Kind = Left; err == nil && h.released() {
			err = d.step(key, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// describe records what is allocated of the claims that a pod uses.
func (d *draft) describe(pod *v1.Pod, uses []Use) error {
	for _, u := range uses {
		key := types.NamespacedName{Namespace: u.Namespace, Name: u.Name}
		if r := d.get(key); r == nil || !r.has(pod.UID) {
			continue // it left
		}
		if err := d.step(key, Event{Kind: Held, At: time.Now(), Use: u,
			User: User{UID: pod.UID, Name: pod.Name}}); err != nil {
			return err
		}
	}
	return nil
}
