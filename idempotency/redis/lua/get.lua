local value = redis.pcall('GET', key)

