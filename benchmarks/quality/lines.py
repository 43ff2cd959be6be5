"""What the judged comparison says: game lines of one to three sentences, of several voices."""

from __future__ import annotations

from typing import NamedTuple


class Said(NamedTuple):
    """One line."""

    voice: str
    language: str
    """The judge's name for it: "en" or "zh"."""
    text: str


LINES = tuple(
    Said(voice, "zh" if voice.startswith("z") else "en", text)
    for voice, text in (
        ("af_heart", "The ferry leaves at dawn, and it will not wait for anyone who is still asleep."),
        ("af_heart", "You look tired, my friend. Sit down, and tell me what happened on the road."),
        ("am_fenrir", "Drop the torch and keep your hands where I can see them."),
        ("am_fenrir", "Nobody has opened that door in thirty years, and tonight is not the night to begin."),
        ("bf_emma", "My sister sells apples by the fountain, but only on market days."),
        ("bf_emma", "If you meet a grey wolf in the pass, walk slowly and do not turn your back."),
        (
            "bm_george",
            "The king will hear you tomorrow. Until then you may not leave, for you are our guest.",
        ),
        ("bm_george", "Three bridges cross the river, and two of them belong to bandits."),
        ("af_bella", "I found this letter under the floor of the old mill. Can you read it?"),
        ("af_bella", "When the bells ring twice, close the shutters and put out every light in the house."),
        ("am_michael", "Our well went dry in June. Since then we carry water from the lake."),
        ("am_michael", "Take the left path until you see a broken tower, then follow the stream."),
        ("bm_fable", "And so the giant slept for a hundred winters, dreaming of the sea."),
        ("bm_fable", "What a fine sword that is! Who made it, and what did you pay?"),
        ("af_sarah", "The captain wants volunteers for the northern wall."),
        ("af_sarah", "I can mend your armour by noon, though the helmet will take longer."),
        ("am_adam", "Listen. Somebody is walking on the roof above us."),
        ("am_adam", "The price is forty silver pieces, and I will not take less."),
        ("bf_isabella", "Good evening. The kitchen is closed, but there is bread and cheese."),
        ("bf_isabella", "Please give this ring to my brother, if he is still alive."),
        ("zf_xiaobei", "天快黑了，我们先找个地方休息吧。"),
        ("zf_xiaobei", "前面的桥已经断了，你们只能走山路。"),
        ("zf_xiaoni", "这封信是王爷亲手交给我的，请你一定要收好。"),
        ("zf_xiaoni", "客官，里面请！今天有新鲜的鱼，还有刚酿好的酒。"),
        ("zf_xiaoxiao", "昨天夜里下了一场大雪，村子外面的路全都看不见了。"),
        ("zf_xiaoxiao", "别着急，先喝一口水，慢慢告诉我发生了什么事情。"),
        ("zm_yunjian", "站住！把你的剑放在地上，慢慢走过来。"),
        ("zm_yunjian", "这座塔里住着一位老人，他知道很多过去的故事。"),
        ("zm_yunxi", "我的马生病了，所以明天我不能跟你们一起出发。"),
        ("zm_yunxi", "如果你愿意帮助我们，城门的守卫会给你一把钥匙。"),
    )
)
