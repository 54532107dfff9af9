package gc

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
)

// TestDecide: above the high mark images are removed down to the low mark, the least recently used
// first. Images that are too young or pinned stay; too old ones are removed whatever the room.
func TestDecide(t *testing.T) {
	now := time.Now()
	ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }
	all := []candidate{
		{Image{ID: "young"}, usage{found: ago(1)}},
		{Image{ID: "late"}, usage{found: ago(90), used: ago(5)}},
		{Image{ID: "never2"}, usage{found: ago(30)}},
		{Image{ID: "never1"}, usage{found: ago(60)}},
		{Image{ID: "early"}, usage{found: ago(20), used: ago(10)}},
		{Image{ID: "pinned", Pinned: true}, usage{found: ago(99)}},
	}
	p := ImagePolicy{High: 85, Low: 80, MinAge: 2 * time.Minute}
	aged := p
	aged.MaxAge = 25 * time.Minute
	for name, c := range map[string]struct {
		policy     ImagePolicy
		available  uint64 // of 1000
		old, spare []string
		free       uint64
	}{
		"room enough":       {p, 160, nil, []string{"never1", "never2", "early", "late"}, 0},
		"at the high mark":  {p, 150, nil, []string{"never1", "never2", "early", "late"}, 50},
		"full":              {p, 0, nil, []string{"never1", "never2", "early", "late"}, 200},
		"old ones":          {aged, 900, []string{"never1", "never2"}, []string{"early", "late"}, 0},
		"never for room":    {ImagePolicy{High: 100, Low: 80}, 0, nil, nil, 0},
		"any age is enough": {ImagePolicy{High: 85, Low: 80}, 0, nil, nil, 200},
	} {
		r := decide(all, Disk{1000, c.available}, c.policy, now)
		if r.free != c.free {
			t.Errorf("%s: %d bytes to free, want %d", name, r.free, c.free)
		}
		if c.spare == nil {
			continue
		}
		if got := ids(r.old); !slices.Equal(got, c.old) {
			t.Errorf("%s: old %q, want %q", name, got, c.old)
		}
		if got := ids(r.spare); !slices.Equal(got, c.spare) {
			t.Errorf("%s: spare %q, want %q", name, got, c.spare)
		}
	}
}

func ids(all []candidate) (out []string) {
	for _, c := range all {
		out = append(out, c.ID)
	}
	return out
}

// store is the images of a runtime, each of 100 bytes on a disk of 1000.
type store struct {
	*Images
	images  map[string]Image
	inUse   sets.Set[string]
	other   uint64 // bytes used otherwise
	stuck   sets.Set[string]
	removed []string
	events  []string
	left    []Image
	// fails is the runtime's error.
	fails error
}

func newStore(t *testing.T, p ImagePolicy, registry metrics.KubeRegistry, names ...string) *store {
	t.Helper()
	s := &store{images: map[string]Image{}, inUse: sets.New[string](), stuck: sets.New[string]()}
	for _, n := range names {
		s.put(n)
	}
	var err error
	s.Images, err = NewImages(ImagesConfig{
		Policy: p, Registry: registry,
		List: func(context.Context) (out []Image, err error) {
			for _, id := range slices.Sorted(maps.Keys(s.images)) {
				out = append(out, s.images[id])
			}
			return out, s.fails
		},
		InUse: func(context.Context) (sets.Set[string], error) { return s.inUse, nil },
		Disk: func(context.Context) (Disk, error) {
			return Disk{1000, 1000 - s.other - uint64(100*len(s.images))}, nil
		},
		Remove: func(_ context.Context, i Image) error {
			id := i.key()
			if s.stuck.Has(id) {
				return errors.New("it is busy")
			}
			s.removed = append(s.removed, id)
			delete(s.images, id)
			return nil
		},
		Left: func(left []Image, _ time.Time) { s.left = left },
		Tell: func(_, reason, message string) { s.events = append(s.events, reason+": "+message) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *store) put(id string) {
	s.images[id] = Image{ID: id, Names: []string{"reg/" + id + ":1"}, Size: 100}
}

// looks calls Look and checks what was removed.
func (s *store) looks(t *testing.T, after time.Duration, want ...string) error {
	t.Helper()
	time.Sleep(after)
	s.removed = nil
	err := s.Look(t.Context())
	if !slices.Equal(s.removed, want) {
		t.Errorf("removed %q, want %q", s.removed, want)
	}
	return err
}

// An image without an id cannot be removed: it makes an event, and the others are still considered.
func TestImageWithoutID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, ImagePolicy{High: 10, Low: 5}, nil, "a")
		s.images[""] = Image{Names: []string{"reg/x:1"}, Size: 100}
		if err := s.looks(t, time.Minute, "a"); err == nil {
			t.Error("there is room enough, it seems")
		}
		want := "InvalidImageID: ImageID is not valid, skipping, image: reg/x:1"
		if len(s.events) == 0 || s.events[0] != want || len(s.left) != 0 {
			t.Errorf("events %q, %v is left", s.events, s.left)
		}
	})
}

// TestImages follows a node whose disk fills up.
func TestImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := metrics.NewKubeRegistry()
		p := ImagePolicy{High: 80, Low: 60, MinAge: time.Minute}
		s := newStore(t, p, registry, "a", "b", "c", "d", "e")
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		s.inUse.Insert("a", "reg/b:1")
		check(s.looks(t, 0))
		s.inUse = sets.New("a", "reg/c:1")
		check(s.looks(t, time.Minute)) // the disk is half full
		s.other = 300
		s.stuck.Insert("d") // d and e were never in use, b was
		if err := s.looks(t, time.Minute, "e", "b"); err == nil ||
			!strings.Contains(err.Error(), "remove image d: it is busy") {
			t.Errorf("error %v", err)
		}
		if got := len(s.left); got != 3 || len(s.events) != 0 {
			t.Errorf("%d images are left; events %q", got, s.events)
		}
		s.stuck.Clear()
		s.put("f") // too young
		s.put("g")
		s.inUse.Insert("g")
		s.other = 500
		err := s.looks(t, time.Second, "d")
		if err == nil || !strings.HasPrefix(err.Error(), "Insufficient free disk space on the "+
			"node's image filesystem (100% of 0.0 GiB used). Failed to free sufficient space by "+
			"deleting unused images (freed 100 bytes).") {
			t.Errorf("error %v", err)
		}
		// This look was the second failure in a row.
		if len(s.events) != 2 || !strings.HasPrefix(s.events[0], "FreeDiskSpaceFailed: Insuff") ||
			!strings.HasPrefix(s.events[1], "ImageGCFailed: Insuff") {
			t.Errorf("events %q", s.events)
		}
		check(testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP kubelet_image_garbage_collected_total [ALPHA] Images removed that nothing used, by why.
# TYPE kubelet_image_garbage_collected_total counter
kubelet_image_garbage_collected_total{reason="space"} 3
`), "kubelet_image_garbage_collected_total"))
	})
}

// TestFree: when a disk runs short all unused images go, however much room there is for the policy, but
// those younger than MinAge, as the kubelet keeps them.
func TestFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, ImagePolicy{High: 100, Low: 99, MinAge: 2 * time.Minute}, nil, "a", "b", "c")
		s.inUse.Insert("a")
		free := func(after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after)
			s.removed = nil
			n, err := s.Free(t.Context())
			if err != nil || n != len(want) || !slices.Equal(s.removed, want) {
				t.Errorf("removed %q, want %q; %v", s.removed, want, err)
			}
		}
		free(0) // just seen
		free(time.Minute)
		s.put("new")
		free(time.Minute, "b", "c")
		free(2*time.Minute - time.Second)
		free(time.Second, "new")
	})
}

// TestOldImages: images that have been unused for too long are removed although there is room,
// counted from when this run of the agent found them.
func TestOldImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, ImagePolicy{High: 100, Low: 80, MaxAge: time.Hour}, nil, "a", "b", "c")
		s.inUse.Insert("a")
		for _, step := range []struct {
			after time.Duration
			want  []string
		}{{0, nil}, {time.Hour, nil}, {time.Minute, []string{"b", "c"}}} {
			if err := s.looks(t, step.after, step.want...); err != nil {
				t.Error(err)
			}
		}
		s.inUse.Clear()
		if err := s.looks(t, 59*time.Minute); err != nil {
			t.Error(err)
		}
		if err := s.looks(t, 2*time.Minute, "a"); err != nil {
			t.Error(err)
		}
	})
}

// TestImageFailures: two failures in a row to list images make an event, and a disk without
// capacity makes another.
func TestImageFailures(t *testing.T) {
	s := newStore(t, ImagePolicy{High: 80, Low: 60}, nil)
	s.fails = errors.New("no answer")
	for range 2 {
		if err := s.Look(t.Context()); err == nil {
			t.Error("no error")
		}
	}
	s.fails = nil
	if err := s.Look(t.Context()); err != nil {
		t.Error(err)
	}
	s.cfg.Disk = func(context.Context) (Disk, error) { return Disk{}, nil }
	if err := s.Look(t.Context()); err == nil {
		t.Error("no error")
	}
	want := []string{"ImageGCFailed: list images: no answer",
		"InvalidDiskCapacity: invalid capacity 0 on image filesystem"}
	if !slices.Equal(s.events, want) {
		t.Errorf("events %q, want %q", s.events, want)
	}
}

// Images of one id that different runtime handlers have are used and removed one by one.
func TestImagesOfHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, ImagePolicy{High: 100, MaxAge: time.Hour}, nil)
		for _, handler := range []string{"", "kata", "gvisor"} {
			i := Image{ID: "a", Names: []string{"reg/a:1"}, Handler: handler, Size: 100}
			s.images[i.key()] = i
		}
		s.inUse.Insert("a,kata")
		_ = s.looks(t, 0)
		_ = s.looks(t, 2*time.Hour, "a", "a,gvisor")
		s.inUse.Delete("a,kata")
		s.inUse.Insert("reg/a:1,*") // a pod whose container does not exist yet
		_ = s.looks(t, 2*time.Hour)
	})
}
