package deviceplugin

// encodedList is a list of devices as the last message encoded it. The next one is compared with
// it, whatever its order: each device is looked for where it would come if the order were that of
// the last message, and by its id where it is not there.
type encodedList struct {
	devices []*Device // of the list
	entries []string  // their encodings, by place in the list
	// first is the place of the message's first device, and next[p] of the one that followed p;
	// nil: p+1. They are only where to look first, and may say anything.
	first int32
	next  []int32
	// places are the devices' places by id; nil until many had to be looked for.
	places map[string]int32
	seen   []bool // by place; of the comparison
}

// nowhere is the place of a device that is not in the list.
const nowhere int32 = -1

// newEncodedList takes the entries of a message in its order. order[p] is where that of the list's
// p-th device was; nil: in the same place.
func newEncodedList(devices []*Device, entries []string, order []int32) *encodedList {
	s := &encodedList{devices: devices, entries: entries, seen: make([]bool, len(entries))}
	if order == nil {
		return s
	}
	s.entries = make([]string, len(entries))
	at := make([]int32, len(entries)) // the other way round
	for place, was := range order {
		s.entries[place] = entries[was]
		at[was] = int32(place)
	}
	for i, place := range at {
		if i == 0 {
			s.first = place
		} else {
			s.follows(at[i-1], place)
		}
	}
	return s
}

// follows notes that the device in a place came after that in another; nowhere: came first.
func (s *encodedList) follows(before, place int32) {
	if before == nowhere {
		s.first = place
		return
	}
	if s.next == nil {
		next := make([]int32, len(s.entries))
		for i := range next {
			next[i] = s.after(int32(i))
		}
		s.next = next
	}
	s.next[before] = place
}

// after is where to look for the device after that in a place.
func (s *encodedList) after(place int32) int32 {
	switch {
	case s.next != nil:
		return s.next[place]
	case int(place)+1 < len(s.entries):
		return place + 1
	}
	return nowhere
}

// differences are what a message says otherwise than the one before.
type differences struct {
	changed []difference // of devices that were in the list
	added   []string     // entries of devices that were not
	gone    []int32      // places of devices that the message does not have, ascending
}

// difference is the entry of a device that is not as it was.
type difference struct {
	place int32
	entry string
}

func (d differences) len() int { return len(d.changed) + len(d.added) + len(d.gone) }

// compare finds what is new in msg. few is false when so much is, or it is so odd, that the message
// has to be read anew.
func (s *encodedList) compare(msg []byte) (out differences, few bool) {
	clear(s.seen)
	c := comparison{list: s, before: nowhere, guess: nowhere, most: len(s.entries)/8 + 1}
	if len(s.entries) > 0 {
		c.guess = s.first
	}
	plain := split(msg, c.step)
	left := len(s.entries) - c.met
	if !plain || c.odd || c.len()+left > c.most {
		return differences{}, false
	}
	for p := 0; left > 0; p++ {
		if !s.seen[p] {
			c.gone = append(c.gone, int32(p))
			left--
		}
	}
	return c.differences, true
}

// comparison is a message on its way through the list.
type comparison struct {
	list *encodedList
	differences
	most     int   // differences that are few
	met      int   // devices of the list that were in the message
	searched int   // devices that were looked for by id
	before   int32 // place of the device before
	guess    int32 // place where the next device is expected
	misses   int   // guesses that were wrong, one after the other
	odd      bool
}

// step takes the next entry; false ends the comparison.
func (c *comparison) step(entry []byte) bool {
	place := c.guess
	same := place != nowhere && string(entry) == c.list.entries[place]
	if !same {
		parts, plain := fieldsOf(entry)
		if !plain {
			c.odd = true
			return false
		}
		place = c.find(parts.id)
		if place == nowhere {
			c.added = append(c.added, string(entry))
			return c.len() <= c.most
		}
		same = string(entry) == c.list.entries[place]
	}
	if c.list.seen[place] { // twice
		c.odd = true
		return false
	}
	c.list.seen[place] = true
	c.met++
	c.arrive(place)
	if !same {
		c.changed = append(c.changed, difference{place, string(entry)})
	}
	return c.len() <= c.most
}

// mostMisses is how many wrong guesses in a row show that the order has nothing of the last one.
const mostMisses = 256

// arrive notes where the device was and guesses where the next one is.
func (c *comparison) arrive(place int32) {
	next := c.list.after(place) // before it is noted what comes after it now
	if place == c.guess {
		c.misses = 0
	} else {
		c.list.follows(c.before, place)
		c.misses++
	}
	if c.misses >= mostMisses {
		next = nowhere
	}
	c.before, c.guess = place, next
}

// find is the place of a device by its id. A few are searched for; a table pays only for many.
func (c *comparison) find(id []byte) int32 {
	if c.guess != nowhere && c.list.devices[c.guess].ID == string(id) {
		return c.guess
	}
	if c.list.places == nil {
		if c.searched++; c.searched <= len(c.list.devices)/64+1 {
			if at, found := lookUp(c.list.devices, string(id)); found {
				return int32(at)
			}
			return nowhere
		}
		c.list.places = make(map[string]int32, len(c.list.devices))
		for i, d := range c.list.devices {
			c.list.places[d.ID] = int32(i)
		}
	}
	if place, known := c.list.places[string(id)]; known {
		return place
	}
	return nowhere
}

// encodedDevice is a device and its encoding.
type encodedDevice struct {
	device *Device
	entry  string
}

// with is the list without the devices in some places, ascending, and with others, in natural
// order of their ids. It takes their order in the next message for that of the list.
func (s *encodedList) with(gone []int32, added []encodedDevice) *encodedList {
	size := len(s.devices) - len(gone) + len(added)
	devices, entries := make([]*Device, 0, size), make([]string, 0, size)
	from := 0
	copyTo := func(place int) {
		devices = append(devices, s.devices[from:place]...)
		entries = append(entries, s.entries[from:place]...)
		from = place
	}
	for len(gone)+len(added) > 0 {
		at := len(s.devices) // where the first of added comes
		if len(added) > 0 {
			at, _ = lookUp(s.devices, added[0].device.ID)
		}
		if len(gone) > 0 && int(gone[0]) < at {
			copyTo(int(gone[0]))
			from++
			gone = gone[1:]
			continue
		}
		copyTo(at)
		devices, entries = append(devices, added[0].device), append(entries, added[0].entry)
		added = added[1:]
	}
	copyTo(len(s.devices))
	return newEncodedList(devices, entries, nil)
}
