package preflight

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/node/hostinfo"
	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/handover"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology/podspec"
)

// maxManifest bounds a manifest in bytes, far above those that an agent takes.
const maxManifest = 10 << 20

// mirror is the annotation of the objects that stand for static pods.
const mirror = "kubernetes.io/config.mirror"

// lookAtPods says of each pod what would wait or change, and what it keeps.
func (l *looking) lookAtPods(ctx context.Context) {
	l.readPods(ctx)
	for _, pod := range l.pods {
		l.specOf(pod)
	}
	if l.reached {
		l.takeOver()
		l.count()
	}
}

// readPods reads the pods of the API server and those of manifests.
func (l *looking) readPods(ctx context.Context) {
	l.listed = true
	if l.cluster.client != nil {
		pods, err := l.cluster.ofNode(ctx, l.Node)
		if err != nil {
			l.listed = false
			l.add(Pods, "of the API server", Blocks, "they cannot be listed: %v", err).Advice =
				"does the node's certificate hold, and is the API server there?"
		}
		for _, pod := range pods {
			if pod.Annotations[mirror] == "" { // a manifest has it
				l.pods = append(l.pods, pod)
			}
		}
	}
	dir := l.cfg.Kubelet.StaticPodPath
	if dir == "" {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		l.listed = false
		l.add(Pods, dir, Note, "no manifest can be read: %v", err)
		return
	}
	for _, e := range entries {
		if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			l.readManifest(filepath.Join(dir, e.Name()))
		}
	}
}

func (l *looking) readManifest(path string) {
	raw, err := files.ReadNamed(path, maxManifest)
	if err != nil {
		l.listed = false
		l.add(Pods, path, Changes, "the manifest cannot be read: %v", err)
		return
	}
	read, err := manifest.Read(raw, l.cfg.RefuseUnknownFields, l.cfg.Enabled)
	if err != nil {
		l.add(Pods, path, Changes, "the manifest would be refused, and its pod would end: %v", err).Advice =
			"docs/running.md says what manifests may have"
		return
	}
	for _, warning := range read.Warnings {
		l.add(Pods, path, Note, "%s", warning)
	}
	l.pods = append(l.pods, read.Pods...)
}

// specOf says which fields of a pod would wait, be refused or be without effect.
func (l *looking) specOf(pod *v1.Pod) {
	subject := pod.Namespace + "/" + pod.Name
	if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return
	}
	switch never, err := volume.Unsupported(pod); {
	case err != nil && never:
		l.add(Pods, subject, Changes, "it goes on, but would be refused when it starts anew: %v", err)
	case err != nil:
		l.add(Pods, subject, Changes, "it goes on, but would wait when it starts anew: %v", err)
	}
	if ignored := podspec.WithoutEffect(pod, l.cfg.Enabled); len(ignored) > 0 {
		l.add(Pods, subject, Changes, "without effect: %s", strings.Join(ignored, ", "))
	}
}

// takeOver does with the kubelet's files what the agent does at its start, and writes nothing.
func (l *looking) takeOver() {
	root := l.cfg.RootDir
	kubelet, err := handover.LookAtKubelet(root, placement.DeviceDir(root))
	for _, err := range each(err) {
		l.add(Pods, "the kubelet's files", Changes, "%v: what it says is lost, and the pods in it are given "+
			"CPUs and devices anew", err)
	}
	state, err := store.ReadState(filepath.Join(root, store.FileName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.add(Pods, store.FileName, Note, "an earlier numalet's record cannot be used: %v", err)
	}
	boot, err := hostinfo.BootID()
	if err != nil {
		l.add(Pods, "boot id", Blocks, "%v", err)
		return
	}
	current, err := machine.Open(l.cfg)
	if err != nil {
		l.add(Configuration, "machine", Blocks, "the agent would not start: %v", err)
		return
	}
	h := current.Get()
	account := kubelet.On(handover.Node{
		Online: h.Machine.Online(), Nodes: h.Machine.NodeSet(), CPUs: h.CPUs, Memory: h.Memory,
	})
	changes, err := handover.Rebuild(state, l.running, boot, account, account)
	for _, err := range each(err) {
		l.add(Pods, "assignments", Changes, "%v: it goes on, and would be given CPUs and devices anew", err)
	}
	kept := map[types.UID]allocation.Pod{}
	maps.Copy(kept, state.Pods)
	for _, change := range changes {
		delete(kept, change.Drop)
		if change.Put.UID != "" {
			kept[change.Put.UID] = change.Put
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(kept)) {
		p := kept[uid]
		l.add(Pods, p.Namespace+"/"+p.Name, Same, "it keeps %s", holdings(p))
	}
}

// each takes joined errors apart.
func each(err error) []error {
	if joined, is := err.(interface{ Unwrap() []error }); is {
		var all []error
		for _, one := range joined.Unwrap() {
			all = append(all, each(one)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// holdings lists what a pod has for itself, by container.
func holdings(p allocation.Pod) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(p.Containers)) {
		c := p.Containers[name]
		var parts []string
		if cpus := c.CPUs(); !cpus.IsEmpty() {
			parts = append(parts, "CPUs "+cpus.String())
		}
		for _, block := range c.Memory() {
			parts = append(parts, string(block.Resource)+" of NUMA node "+block.Nodes.String())
		}
		for _, set := range c.Devices() {
			parts = append(parts, set.Resource+" "+strings.Join(set.IDs, ","))
		}
		if name == allocation.WholePod {
			name = "as a whole"
		}
		all = append(all, name+": "+strings.Join(parts, ", "))
	}
	return strings.Join(all, "; ")
}

// count says how many pods run, and which of them no source has.
func (l *looking) count() {
	known := map[string]bool{}
	for _, pod := range l.pods {
		name := pod.Namespace + "/" + pod.Name
		known[name], known[name+"-"+l.Node] = true, true // static pods have the node's name behind theirs
	}
	running := 0
	for _, pod := range l.running {
		if !pod.Running() {
			continue
		}
		running++
		name := pod.Namespace + "/" + pod.Name
		if l.listed && l.cfg.Kubelet.StaticPodURL == "" && !known[name] {
			l.add(Pods, name, Note, "neither the API server nor a manifest has it: it would end, as with a kubelet")
		}
	}
	l.add(Pods, strconv.Itoa(running)+" running", Same, "they go on, and no container is started anew")
}
