package redis

// WatchEvictions is Maintain with an interval.
var WatchEvictions = (*Store).watchEvictions
