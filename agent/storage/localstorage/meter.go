package localstorage

import (
	"context"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/agent/storage/localstorage/held"
	"github.com/numalet/numalet/internal/await"
)

// walkers is how many pods' volumes are measured at once, and slowWalkers how many of those that take
// long: others need not wait for them.
const walkers, slowWalkers = 4, 2

// Config says what to measure.
type Config struct {
	Root, LogsDir string
	// Period is about the time between two measurements of a pod's volumes (volumeStatsAggPeriod); if
	// it is not positive, volumes are not measured.
	Period time.Duration
	// Pods returns those that have not ended.
	Pods func() []*v1.Pod
	// Quota returns what the kernel counted for a volume, if it counts; nil: it does not.
	Quota func(dir string) (diskusage.Usage, bool)
	// Processes looks at pods' processes; nil: they cannot be found.
	Processes *held.Pods
	// Looked gets how long measuring a volume took, and the method. Optional.
	Looked func(by string, took time.Duration)
}

// Volume counts what a volume of a pod uses.
type Volume struct {
	Name string
	Room diskusage.Room // of its filesystem
	Used diskusage.Usage
	At   time.Time
	// Local: it counts as the pod's ephemeral storage, being on the node's own disk.
	Local bool
}

// Pod counts what a pod uses on the node's disks beside the writable layers of its containers.
type Pod struct {
	Namespace, Name string
	Volumes         []Volume // in the order of the spec; those that are there, and were measured
	// Logs are the files of containers' logs, by container; Files are the pod's own logs and its
	// /etc/hosts.
	Logs  map[string]diskusage.Usage
	Files diskusage.Usage
	At    time.Time // when logs and files were measured
}

// Meter measures pods in the background: each 10 s, and when a caller asks, it looks for what is due.
type Meter struct {
	cfg Config
	// askedFiles and askedVolumes have capacity 1.
	askedFiles, askedVolumes chan struct{}

	mu      sync.Mutex
	pods    map[types.UID]Pod
	volumes map[types.UID]history
	// filesWanted: a caller of Anew wants logs and files measured now.
	filesWanted bool
	disk        disk // only the goroutine of volumes changes it
}

// New returns a meter that has measured nothing yet.
func New(c Config) *Meter {
	if c.Looked == nil {
		c.Looked = func(string, time.Duration) {}
	}
	return &Meter{cfg: c, pods: map[types.UID]Pod{}, volumes: map[types.UID]history{},
		askedFiles: make(chan struct{}, 1), askedVolumes: make(chan struct{}, 1)}
}

// Get returns what pods use by what was measured last, and has measured anew what is due.
func (m *Meter) Get() map[types.UID]Pod {
	await.Wake(m.askedFiles)
	await.Wake(m.askedVolumes)
	m.mu.Lock()
	defer m.mu.Unlock()
	out := maps.Clone(m.pods)
	for uid, p := range out {
		p.Volumes = m.volumes[uid].last
		out[uid] = p
	}
	return out
}

// Anew has what these pods have on disks measured, before all others and in a hurry, and returns which
// are measured soon, and which later, since they take long. Volumes that take long and were just measured
// are in neither. It does not wait.
func (m *Meter) Anew(uids []types.UID) (soon, late []types.UID) {
	defer await.Wake(m.askedFiles)
	defer await.Wake(m.askedVolumes)
	known, now := sets.New[types.UID](), time.Now()
	for _, pod := range m.cfg.Pods() {
		known.Insert(pod.UID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.filesWanted = true
	for _, uid := range uids {
		h := m.volumes[uid]
		switch {
		case !known.Has(uid):
			continue
		case h.soon():
			soon = append(soon, uid)
		case h.again(now):
			late = append(late, uid)
		default:
			continue
		}
		h.anew = now
		m.volumes[uid] = h
	}
	return soon, late
}

// hurries reports whether a caller of Anew waits for the pod's volumes.
func (m *Meter) hurries(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.volumes[uid].wanted(time.Now())
}

// Run measures until ctx ends.
func (m *Meter) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	if m.cfg.Period > 0 {
		all.Go(func() { m.runVolumes(ctx) })
	}
	var looked time.Time
	for asked(ctx, m.askedFiles) {
		if !m.wantsFiles() && time.Since(looked) < filesPeriod && !m.someNew() {
			continue
		}
		looked = time.Now()
		m.files(ctx)
	}
	return nil
}

// asked waits until c has a value, but not longer than until the next look is due. It reports false if
// ctx ended.
func asked(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
	case <-time.After(filesPeriod):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// wantsFiles reports whether Anew asked for logs and files since the last call of wantsFiles.
func (m *Meter) wantsFiles() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	wanted := m.filesWanted
	m.filesWanted = false
	return wanted
}

// someNew reports whether there is a pod of which nothing was measured.
func (m *Meter) someNew() bool {
	pods := m.cfg.Pods()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, pod := range pods {
		if _, known := m.pods[pod.UID]; !known {
			return true
		}
	}
	return false
}

// files measures logs and /etc/hosts of all pods, and forgets pods that are no more.
func (m *Meter) files(ctx context.Context) {
	now := map[types.UID]Pod{}
	for _, pod := range m.cfg.Pods() {
		if ctx.Err() != nil {
			return
		}
		now[pod.UID] = m.filesOf(pod)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods = now
	maps.DeleteFunc(m.volumes, func(uid types.UID, h history) bool {
		_, known := now[uid]
		return !known && !h.measuring
	})
}

// runVolumes measures the volumes that are due, a few pods at a time.
func (m *Meter) runVolumes(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	slots, slow := make(chan struct{}, walkers), make(chan struct{}, slowWalkers)
	for asked(ctx, m.askedVolumes) {
		m.lookAtDisk()
		for _, pod := range m.due(time.Now()) {
			before, grown := m.known(pod.UID)
			own := slots
			if !before.soon() {
				own = slow
			}
			if len(slots) == walkers || len(own) == cap(own) {
				continue // the next that is done wakes us
			}
			slots <- struct{}{}
			if own == slow {
				slow <- struct{}{}
			}
			m.begin(pod.UID)
			all.Go(func() {
				m.measure(ctx, pod, before, grown)
				if own == slow {
					<-slow
				}
				<-slots
				await.Wake(m.askedVolumes)
			})
		}
	}
}

// lookAtDisk looks how much the disk grew.
func (m *Meter) lookAtDisk() {
	next := m.disk.next(m.cfg.Root)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disk = next
}

// known returns what is known of a pod, and how much the disk grew.
func (m *Meter) known(uid types.UID) (history, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.volumes[uid], m.disk.grown
}

// due returns the pods whose volumes are to be measured, those that wait longest first.
func (m *Meter) due(now time.Time) []*v1.Pod {
	pods := m.cfg.Pods()
	m.mu.Lock()
	defer m.mu.Unlock()
	return moment{now, m.disk, m.cfg.Period}.due(pods, m.volumes)
}

// begin records that the pod is being measured.
func (m *Meter) begin(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.volumes[uid]
	h.measuring = true
	m.volumes[uid] = h
}

// measure measures the volumes of a pod; grown is how much the disk had grown when that began.
func (m *Meter) measure(ctx context.Context, pod *v1.Pod, h history, grown uint64) {
	began := time.Now()
	if m.cfg.Processes != nil {
		h.wrote = m.cfg.Processes.Wrote(pod.UID)
	}
	all, worked := m.volumesOf(ctx, pod, h.last)
	partial := ""
	for _, v := range all {
		if v.Used.Partial {
			partial = v.Name
		}
	}
	if h.wrong.Begins(partial) {
		klog.FromContext(ctx).Info("A volume is too large to be measured, or cannot be read as a whole; "+
			"what it uses counts as far as it was read", "pod", klog.KObj(pod), "volume", partial)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next := h.next(all, time.Now(), worked, grown)
	if now := m.volumes[pod.UID]; now.anew.After(began) { // it may have passed what is asked about
		next.anew = now.anew
	}
	m.volumes[pod.UID] = next
}
