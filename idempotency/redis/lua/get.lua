local value = redis.call('GET', key)

