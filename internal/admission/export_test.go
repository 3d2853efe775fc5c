package admission

// MatchesAny is the comparison of addresses, for the test that holds it against
// one in Go.
var MatchesAny = matchesAny
