package devicemanager

// encodedList is a list of devices as the last message encoded it, to compare the next message
// with, whatever its order. A device is expected where the order of the last message puts it, and
// else looked up by id.
type encodedList struct {
	devices []*Device // of the list
	entries []string  // their encodings, by index in devices
	// first is the index of the message's first device, next[p] that of the device after p; a nil
	// next stands for p+1. They only guide the search and may be wrong.
	first int32
	next  []int32
	// places holds the devices' indices by id; nil until many had to be looked up.
	places map[string]int32
	seen   []bool // by index; scratch space of the comparison
}

// nowhere stands for a device that is not in the list.
const nowhere int32 = -1

// newEncodedList takes the entries of a message in its order. order[p] is the position in the
// message of the list's p-th device; nil: the same as in the list.
func newEncodedList(devices []*Device, entries []string, order []int32) *encodedList {
	s := &encodedList{devices: devices, entries: entries, seen: make([]bool, len(entries))}
	if order == nil {
		return s
	}
	s.entries = make([]string, len(entries))
	at := make([]int32, len(entries)) // the inverse of order
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

// follows notes that the device at place came after the one at before, or first if before is
// nowhere.
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

// after returns where to expect the device after the one at place.
func (s *encodedList) after(place int32) int32 {
	switch {
	case s.next != nil:
		return s.next[place]
	case int(place)+1 < len(s.entries):
		return place + 1
	}
	return nowhere
}

// differences holds what a message changes in the list.
type differences struct {
	changed []difference // of devices that were in the list
	added   []string     // entries of devices that were not
	gone    []int32      // indices of devices that the message lacks, ascending
}

// difference is the new entry of a device that changed.
type difference struct {
	place int32
	entry string
}

func (d differences) len() int { return len(d.changed) + len(d.added) + len(d.gone) }

// compare finds what msg changes. If few is false, so much differs, or the message is so odd, that
// it has to be read anew.
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

// comparison walks a message along the list.
type comparison struct {
	list *encodedList
	differences
	most     int   // more differences than this are not few
	met      int   // devices of the list that were in the message
	searched int   // devices looked up by id
	before   int32 // index of the previous device
	guess    int32 // expected index of the next device
	misses   int   // consecutive wrong guesses
	odd      bool
}

// step takes the next entry; it returns false to end the comparison.
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

// mostMisses is the number of consecutive wrong guesses that shows an entirely new order.
const mostMisses = 256

// arrive notes the place of the current device and guesses that of the next.
func (c *comparison) arrive(place int32) {
	next := c.list.after(place) // the old order, before follows changes it
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

// find returns the index of a device by its id. A few ids are searched for; only many are worth a
// table.
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

// with returns the list without the devices at the indices gone (ascending) and with added (in
// natural order of ids). It assumes that the next message is in the order of the list.
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
		at := len(s.devices) // where the first of added belongs
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
