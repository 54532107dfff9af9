package localstorage

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/internal/podtest"
)

func cacheOf(bytes uint64) []Volume {
	return []Volume{{Name: "cache", Local: true, Used: diskusage.Usage{Bytes: bytes}}}
}

// TestDueAt: how long after a measurement of a minute's period the next one is due.
func TestDueAt(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	const took = 20 * time.Millisecond
	free, limited := with("main", empty("cache", "", "")), with("main", empty("cache", "", "1000"))
	critical := with("main", empty("cache", "", "1000"))
	podtest.Annotations("kubernetes.io/config.source", "file")(critical)
	byPod := with("main ephemeral-storage=1000", empty("cache", "", ""))
	once := func(bytes uint64) history { return history{}.next(cacheOf(bytes), now, took, 500) }
	twice := func(before, bytes uint64) history {
		return history{}.next(cacheOf(before), now.Add(-100*time.Second), took, 400).
			next(cacheOf(bytes), now, took, 500)
	}
	slow := func(worked time.Duration) history { return history{}.next(cacheOf(1), now, worked, 500) }
	anew := func(h history) history {
		h.anew = now
		return h
	}
	for name, tc := range map[string]struct {
		pod   *v1.Pod
		h     history
		grown uint64 // the disk, of 10000 bytes, since
		want  time.Duration
	}{
		"changes":                                {free, twice(1, 2), 0, 2 * time.Minute},
		"changes not":                            {free, twice(2, 2), 0, 4 * time.Minute},
		"shrinks":                                {limited, twice(2, 1), 0, 2 * time.Minute},
		"the disk grows":                         {free, twice(2, 2), 101, time.Minute},
		"the disk grows a little":                {free, twice(2, 2), 100, 4 * time.Minute},
		"limited, the first time":                {limited, once(1), 0, 30 * time.Second},
		"limited, far from it":                   {limited, twice(2, 2), 499, 4 * time.Minute},
		"limited, the disk grows by what it may": {limited, twice(2, 2), 500, 30 * time.Second},
		"limited, grows by 2 a second":           {limited, twice(0, 200), 0, 2 * time.Minute},
		"limited, 160 s from it":                 {limited, twice(0, 384), 0, 80 * time.Second},
		"limited, 10 s from it":                  {limited, twice(0, 909), 0, 10 * time.Second},
		"limited as a pod":                       {byPod, twice(0, 384), 0, 80 * time.Second},
		"over the limit":                         {limited, twice(0, 2000), 0, 2 * time.Minute},
		"critical":                               {critical, twice(0, 909), 0, 2 * time.Minute},
		"the kernel counts":                      {limited, slow(time.Microsecond), 0, 10 * time.Second},
		"the kernel counts, without a limit":     {free, slow(time.Microsecond), 0, 2 * time.Minute},
		"takes long":                             {limited, slow(time.Minute), 500, 5 * time.Minute},
		"takes long, and somebody asks":          {free, anew(slow(2 * time.Second)), 0, 2 * time.Minute},
	} {
		m := moment{now, disk{size: 10000, grown: 500 + tc.grown}, time.Minute}
		if got := m.dueAt(tc.pod, tc.h).Sub(now); got.Round(time.Second) != tc.want {
			t.Errorf("%s: due after %s; want %s", name, got, tc.want)
		}
	}
}

// TestDue: new pods and those that somebody wants measured come first, then those that wait longest; not one that is being measured, nor
// one without volumes.
func TestDue(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var pods []*v1.Pod
	for _, name := range []string{"later", "late", "not yet", "measured", "asked", "new", "bare"} {
		pod := with("main", empty("cache", "", ""))
		if pod.UID = types.UID(name); name == "bare" {
			pod.Spec.Volumes = nil
		}
		pods = append(pods, pod)
	}
	at := func(ago time.Duration) history { return history{}.next(cacheOf(1), now.Add(-ago), 0, 0) }
	known := map[types.UID]history{"later": at(5 * time.Minute), "late": at(6 * time.Minute),
		"not yet": at(time.Minute), "measured": {measuring: true, anew: now}}
	asked := at(time.Minute)
	asked.anew = now
	known["asked"] = asked
	got := ""
	for _, pod := range (moment{now, disk{}, time.Minute}).due(pods, known) {
		got += string(pod.UID) + ","
	}
	if got != "asked,new,late,later," {
		t.Errorf("due are %s", got)
	}
}
