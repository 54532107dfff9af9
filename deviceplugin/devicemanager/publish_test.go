package devicemanager

import "testing"

// Changes that readers see wake them; the list of a plugin behind another one does not.
func TestOnlyWhatShowsIsNews(t *testing.T) {
	changes := 0
	p, err := New(Config{Dirs: Dirs{Plugins: t.TempDir()}, Changed: func() { changes++ }})
	if err != nil {
		t.Fatal(err)
	}
	standby, serving := newTestLink(gpu, "/a"), newTestLink(gpu, "/b")
	others := newTestLink("example.com/nic", "/c")
	known := p.table
	health := healthSaid{}
	for _, step := range []struct {
		what string
		e    event
		news bool
	}{
		{"a plugin registers", event{kind: linkRegistered, link: standby}, true},
		{"and lists", event{kind: linkListed, link: standby, list: someDevices(2)}, true},
		{"a newer one registers", event{kind: linkRegistered, link: serving}, false},
		{"fails to list", event{kind: linkTroubled, link: serving, problem: "no"}, false},
		{"and lists", event{kind: linkListed, link: serving, list: someDevices(3)}, true},
		{"the older one lists more", event{kind: linkListed, link: standby, list: someDevices(9)},
			false},
		{"and too much", event{kind: linkRefused, link: standby, problem: "too long"}, false},
		{"and loses its stream", event{kind: linkLost, link: standby, problem: "lost"}, false},
		{"and lists again", event{kind: linkListed, link: standby, list: someDevices(1)}, false},
		{"the newer one lists too much",
			event{kind: linkRefused, link: serving, problem: "no"}, true},
		{"and something else", event{kind: linkListed, link: serving, list: someDevices(4)}, true},
		{"another resource", event{kind: linkRegistered, link: others}, true},
		{"has trouble", event{kind: linkTroubled, link: others, problem: "no answer"}, true},
		{"the same trouble", event{kind: linkTroubled, link: others, problem: "no answer"}, false},
		{"nothing to give", event{kind: linkListed, link: others}, true},
		{"it ends", event{kind: linkClosed, link: others, problem: "ended"}, true},
		{"and is forgotten", event{kind: linkExpired, link: others}, true},
		{"the newer one ends", event{kind: linkClosed, link: serving, problem: "ended"}, true},
	} {
		before := p.Inventory().Version
		known.apply(step.e)
		p.publish(t.Context(), health)
		news := changes > 0
		changes = 0
		if grown := p.Inventory().Version > before; news != step.news || grown != step.news {
			t.Errorf("%s: woken %t, version grown %t; want %t", step.what, news, grown, step.news)
		}
		want := known.view(p.Inventory().Version)
		if !want.says(p.current.Load()) {
			t.Errorf("%s: readers see %+v, want %+v", step.what, p.Inventory(), want.inventory)
		}
	}
	if n := len(p.Inventory().Resources[gpu].Devices); n != 1 {
		t.Errorf("the older plugin serves %d devices, want those that it listed last", n)
	}
}
