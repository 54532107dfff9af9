package eni

import (
	"testing"
	"time"
)

// podsHave returns that pods have these ids, asked now, with no patience for pods that are missing.
func podsHave(ids ...string) sightOfPods {
	held := map[string]bool{}
	for _, id := range ids {
		held[id] = true
	}
	return sightOfPods{held: held, asked: time.Now()}
}

// The next phase of a record, by who has the interface and where it is seen.
func TestRecords(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	nic := Interface{ID: "0000:01:00.0", Link: Link{State: State{Name: "eth1", MTU: 1500}}}
	nic.Hardware.PCI = nic.ID
	software := Interface{ID: "veth1", Link: Link{Kind: "veth", State: State{Name: "veth1"}}}
	record := func(i Interface, p Phase, seen bool, since time.Duration) *Record {
		return &Record{Resource: "a", Home: i, Phase: p, Seen: seen, Since: now.Add(-since)}
	}
	missed := func(r *Record, ago time.Duration) *Record {
		r.Missed = now.Add(-ago)
		return r
	}
	// used: away, with a process in its namespace
	const home, away, used, unplugged = "home", "away", "used", "unplugged"
	held, none := map[string]bool{nic.ID: true, software.ID: true}, map[string]bool{}
	for name, tt := range map[string]struct {
		of      Interface
		before  *Record
		where   string
		refused bool
		held    map[string]bool
		phase   Phase // "": there is no record
		seen    bool
		trouble string
	}{
		"offered": {nic, nil, home, false, nil, Free, false, ""},
		"refused": {nic, nil, home, true, nil, "", false, ""},
		"refused later": {nic, record(nic, Free, false, 0), home,
			true, nil, "", false, ""},
		"unplugged": {nic, record(nic, Free, false, 0), unplugged,
			false, nil, "", false, ""},
		"moved by somebody": {nic, record(nic, Free, false, 0), away,
			false, nil, Free, false, "somebody has moved it into another network namespace"},
		"software is gone": {software, record(software, Free, false, 0), away,
			false, nil, "", false, ""},
		"handed, not seen yet": {nic, record(nic, Handed, false, time.Minute), home,
			false, none, Handed, false, ""},
		"handed, refused": {nic, record(nic, Handed, false, time.Minute), home,
			true, none, Handed, false, ""},
		"handed, seen": {nic, record(nic, Handed, false, time.Minute), away,
			false, held, Handed, true, ""},
		"handed, nobody tells": {nic, record(nic, Handed, true, time.Hour), away,
			false, nil, Handed, true, ""},
		"an agent that has just started": {nic, record(nic, Handed, true, time.Hour), away,
			false, none, Handed, true, ""},
		"its pod is gone": {nic, missed(record(nic, Handed, true, time.Hour), time.Minute), away,
			false, none, Returning, true, "it is being brought back from a container"},
		"told of again": {nic, missed(record(nic, Handed, true, time.Hour), time.Minute), away,
			false, held, Handed, true, ""},
		"an agent that knows no pod for long": {nic, missed(record(nic, Handed, true, 2*time.Hour),
			time.Hour), used, false, none, Handed, true, ""},
		"asked about its last pod": {nic, record(nic, Handed, false, -time.Second), home,
			false, held, Handed, false, ""},
		"its pod never came": {nic, missed(record(nic, Handed, false, time.Hour), time.Hour), home,
			false, none, Returning, false, "it is being brought back from a container"},
		"its pod may come yet": {nic, missed(record(nic, Handed, false, time.Hour), time.Minute), home,
			false, none, Handed, false, ""},
		"unplugged from a pod": {nic, record(nic, Handed, true, time.Hour), unplugged,
			false, held, Handed, true, "the hardware is gone"},
		"and its pod is gone": {nic, missed(record(nic, Handed, true, time.Hour), time.Minute), unplugged,
			false, none, "", false, ""},
		"returning": {nic, record(nic, Returning, true, time.Hour), away,
			false, none, Returning, true, "it is being brought back from a container"},
		"software in a pod": {software, record(software, Handed, true, time.Hour), away,
			false, held, Handed, true, ""},
		"software, its pod is gone": {software, missed(record(software, Handed, true, time.Hour),
			time.Minute), away, false, none, Returning, true, "it is being brought back from a container"},
	} {
		t.Run(name, func(t *testing.T) {
			records, s := Records{}, sight{home: map[string]Interface{}}
			s.pods = sightOfPods{tt.held, now, missedFor}
			s.used = func(Interface) bool { return tt.where == used }
			s.present = func(i Interface) bool {
				return i.Hardware.PCI == "" || tt.where != unplugged
			}
			if tt.before != nil {
				records[tt.of.ID] = *tt.before
			}
			if tt.where == home {
				s.home[tt.of.ID] = tt.of
				c := Choice{Interface: tt.of, Rule: Rule{Resource: "a"}}
				if tt.refused {
					c.Refusal = "no"
				}
				s.choices = append(s.choices, c)
			}
			after, has := records.next(s)[tt.of.ID]
			if has != (tt.phase != "") || after.Phase != tt.phase || after.Seen != tt.seen {
				t.Fatalf("the record is %+v, %t", after, has)
			}
			if got := after.health(s.home, s.present); has && got != tt.trouble {
				t.Errorf("it is unhealthy because %q, want %q", got, tt.trouble)
			}
		})
	}
}

// Home follows changes of an interface while nobody has it, and is kept from its handing out on.
func TestHomeIsKept(t *testing.T) {
	nic := Interface{ID: "veth1", Link: Link{Index: 3, Carrier: true, State: State{MTU: 1500}}}
	changed := nic
	changed.Link.State.MTU = 9000
	look := func(b Records, i Interface) Records {
		return b.next(sight{choices: []Choice{{Interface: i}}, home: map[string]Interface{i.ID: i},
			present: func(Interface) bool { return true }})
	}
	records := look(look(Records{}, nic), changed)
	if got := records["veth1"].Home.Link; got.State.MTU != 9000 || got.Carrier {
		t.Errorf("free, it is %+v", got)
	}
	r := records["veth1"]
	r.Phase, r.Since = Handed, time.Now()
	if got := look(Records{"veth1": r}, nic)["veth1"].Home.Link.State.MTU; got != 9000 {
		t.Errorf("handed out, it was said to have had an MTU of %d", got)
	}
}
