"""Prints each message of a hub's log: its subject, its place and its bytes in hexadecimal."""

import asyncio
import sys

import nats
from nats.js.errors import NotFoundError

STREAM = "tickwire-hub"


async def main(url):
    client = await nats.connect(url)
    stream = client.jetstream()
    state = (await stream.stream_info(STREAM)).state
    for number in range(state.first_seq, state.last_seq + 1):
        try:
            message = await stream.get_msg(STREAM, number)
        except NotFoundError:
            continue
        place = (message.headers or {}).get("Tickwire-Place")
        if place:
            print(f"{message.subject};{place};{(message.data or b'').hex()}")
    await client.close()


asyncio.run(main(sys.argv[1]))
