package topology

// Choices returns the number of ways to choose k of n, or some number above most if there are more.
func Choices(n, k, most int) int {
	ways := 1
	for i := range min(k, n-k) {
		if ways = ways * (n - i) / (i + 1); ways > most {
			break
		}
	}
	return ways
}

// Combinations calls visit with each ascending choice of k of the numbers below n, in lexicographic
// order, until visit returns false. The slice is only valid during the call. If k is more than n,
// there is no choice.
func Combinations(n, k int, visit func([]int) bool) {
	if k > n {
		return
	}
	set := make([]int, k)
	for i := range set {
		set[i] = i
	}
	for visit(set) {
		i := k - 1
		for i >= 0 && set[i] == n-k+i {
			i--
		}
		if i < 0 {
			return
		}
		set[i]++
		for j := i + 1; j < k; j++ {
			set[j] = set[j-1] + 1
		}
	}
}
