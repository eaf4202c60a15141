"""The tools of the demo task and the words for their arguments.  Data only.

Owns: the tool table TOOLS, the words people use for rooms, devices and values.  Refuses: sentences (phrases.py).
"""

ROOMS = {  # canonical name -> what people say
    "kitchen": ("kitchen",), "living room": ("living room", "living room", "lounge", "sitting room"),
    "bedroom": ("bedroom",), "bathroom": ("bathroom", "bathroom", "bath"), "hallway": ("hallway", "hall", "corridor"),
    "garage": ("garage",), "office": ("office", "office", "study"), "dining room": ("dining room",),
    "basement": ("basement", "basement", "cellar"), "attic": ("attic", "attic", "loft"), "nursery": ("nursery",),
    "guest room": ("guest room", "guest room", "spare room"), "garden": ("garden", "garden", "yard", "backyard"),
    "balcony": ("balcony",), "laundry room": ("laundry room", "laundry", "utility room"),
    "porch": ("porch",), "terrace": ("terrace", "patio"), "kids room": ("kids room", "kids' room", "children's room"),
    "workshop": ("workshop",), "greenhouse": ("greenhouse",),
}
ON_ROOMS = ("balcony", "porch", "terrace")  # "on the balcony", not "in"

LIGHTS = {  # canonical name -> (singular, plural or "") as said
    "light": (("light", "lights"), ("light", "lights"), ("lighting", "")), "lamp": (("lamp", "lamps"), ("lamp", "")),
    "ceiling light": (("ceiling light", "ceiling lights"), ("ceiling lamp", "")), "floor lamp": (("floor lamp", ""),),
    "desk lamp": (("desk lamp", ""),), "wall light": (("wall light", "wall lights"), ("wall lamp", "")),
    "spotlight": (("spotlight", "spotlights"), ("spot", "spots")),
    "led strip": (("led strip", "led strips"), ("light strip", "")),
    "night light": (("night light", ""),), "reading lamp": (("reading lamp", ""), ("reading light", "")),
    "chandelier": (("chandelier", ""),),
}
BLINDS = {
    "blinds": (("blind", "blinds"), ("", "blinds"), ("roller blind", "")), "awning": (("awning", ""), ("sunshade", "")),
    "curtains": (("curtain", "curtains"), ("", "curtains"), ("", "drapes")),
    "shutters": (("shutter", "shutters"), ("", "shutters"), ("roller shutter", "roller shutters")),
}
RELAYS = {
    "fan": (("fan", ""), ("ventilator", "")), "heater": (("heater", ""), ("space heater", "")),
    "pump": (("pump", ""), ("water pump", "")), "sprinkler": (("sprinkler", "sprinklers"),),
    "coffee machine": (("coffee machine", ""), ("coffee maker", "")), "kettle": (("kettle", ""),),
    "dehumidifier": (("dehumidifier", ""),), "humidifier": (("humidifier", ""),),
    "air purifier": (("air purifier", ""), ("air filter", "")),
    "socket": (("socket", ""), ("plug", ""), ("outlet", "")),
    "boiler": (("boiler", ""), ("water heater", "")), "charger": (("charger", ""), ("battery charger", "")),
    "fountain": (("fountain", ""),), "dishwasher": (("dishwasher", ""),), "oven": (("oven", ""),),
    "washing machine": (("washing machine", ""), ("washer", "")), "dryer": (("dryer", ""), ("tumble dryer", "")),
    "tv": (("tv", ""), ("television", "")), "radio": (("radio", ""),), "speaker": (("speaker", "speakers"),),
    "printer": (("printer", ""),), "towel warmer": (("towel warmer", ""),),
}
DOORS = {
    "front door": ("front door", "front door", "main door", "entrance"), "back door": ("back door", "rear door"),
    "garage door": ("garage door",), "side door": ("side door",), "gate": ("gate", "garden gate"),
    "patio door": ("patio door", "terrace door"), "cellar door": ("cellar door", "basement door"),
    "shed": ("shed",), "door": ("door",), "all": ("doors",),
}
KINDS = {  # what a sensor measures
    "temperature": ("temperature",), "humidity": ("humidity",), "co2": ("co2", "co2 level", "carbon dioxide"),
    "air quality": ("air quality",), "light level": ("light level", "brightness"), "power": ("power", "power draw"),
    "motion": ("motion",), "noise": ("noise level", "noise"), "water leak": ("water leak", "leak"),
    "smoke": ("smoke",), "pressure": ("air pressure", "pressure"), "battery": ("battery level", "battery"),
    "soil moisture": ("soil moisture",),
}
NUMERIC_KINDS = ("temperature", "humidity", "co2", "light level", "power", "noise", "pressure", "soil moisture")
LEVEL_KINDS = (*NUMERIC_KINDS, "air quality", "battery")
EVENT_KINDS = ("motion", "water leak", "smoke", "noise")
COLORS = ("red", "green", "blue", "yellow", "orange", "purple", "pink", "white", "warm white", "cold white",
          "turquoise", "violet")
SCENES = ("movie", "reading", "party", "dinner", "night", "relax", "focus", "morning", "romantic", "gaming", "cleaning")
MODES = {"heat": ("heat", "heating"), "cool": ("cool", "cooling"), "auto": ("auto", "automatic"),
         "eco": ("eco", "economy"), "dry": ("dry",), "off": ("off",)}
SPEEDS = {"low": ("low", "slow"), "medium": ("medium",), "high": ("high", "full", "maximum")}
MUSIC = ("jazz", "rock", "pop", "classical music", "blues", "techno", "folk", "reggae", "country music", "hip hop",
         "metal", "soul", "funk", "piano music", "the news", "my favourites", "my playlist", "lullabies",
         "christmas songs", "the beatles", "mozart", "bach", "miles davis", "abba", "queen", "nature sounds",
         "workout music", "a podcast", "an audiobook", "music", "music", "relaxing music", "dance music", "chill music")
LABELS = ("pasta", "pizza", "tea", "egg", "laundry", "bread", "cake", "rice", "workout", "homework", "nap", "roast",
          "cookies", "potatoes", "meditation")
PERIODS = {"today": ("today",), "yesterday": ("yesterday",), "week": ("this week", "the week"),
           "month": ("this month", "the month"), "year": ("this year", "the year")}
TASK_VERBS = ("feed", "check", "call", "clean", "water", "fix", "wash", "bring in", "take out", "pick up", "look after",
              "pay", "order", "empty", "test", "charge")
TASK_OBJECTS = ("the cat", "the dog", "the plants", "the bins", "the trash", "mom", "dad", "the car", "the bike",
                "the mail", "the kids", "the rent", "the doctor", "the filter", "the fridge", "anna", "the bill",
                "the laundry", "the smoke detector", "the router")
PEOPLE = ("mom", "dad", "the kids", "the doctor", "anna", "the cat", "the dog")
SECURITY = {"home": ("home", "stay"), "away": ("away",), "night": ("night",)}

_R, _T = ("room?", "room"), ("time?", "time")
TOOLS = {  # tool -> arguments in output order: (name, kind); a trailing ? marks an optional one
    "light.on": (_R, ("device", LIGHTS), _T), "light.off": (_R, ("device", LIGHTS), _T),
    "light.set": (_R, ("device", LIGHTS), ("brightness", (0, 100)), _T),
    "light.color": (_R, ("device", LIGHTS), ("color", COLORS), _T),
    "light.scene": (_R, ("scene", SCENES), _T),
    "blind.open": (_R, ("device", BLINDS), _T), "blind.close": (_R, ("device", BLINDS), _T),
    "blind.set": (_R, ("device", BLINDS), ("position", (0, 100)), _T), "blind.stop": (_R, ("device", BLINDS)),
    "climate.set": (_R, ("temperature", (5, 35)), _T), "climate.mode": (_R, ("mode", MODES), _T),
    "climate.adjust": (_R, ("direction", ("up", "down")), ("degrees", (1, 10))),
    "fan.speed": (_R, ("speed", SPEEDS), _T),
    "sensor.read": (_R, ("kind", KINDS)),
    "sensor.alert": (_R, ("kind", KINDS), ("condition", ("above", "below", "detected")), ("value?", (0, 2000))),
    "device.status": (_R, ("device", {**LIGHTS, **BLINDS, **RELAYS})), "energy.report": (("period", PERIODS),),
    "timer.set": (("duration", (1, 240)), ("unit", ("seconds", "minutes", "hours")), ("label?", LABELS)),
    "timer.cancel": (("label?", LABELS),), "timer.left": (("label?", LABELS),),
    "alarm.set": (("time", "time"),), "alarm.cancel": (("time?", "time"),),
    "reminder.set": (("task", "text"), _T),
    "media.play": (_R, ("query", MUSIC), _T), "media.pause": (_R,), "media.resume": (_R,), "media.next": (_R,),
    "media.volume": (_R, ("level", (0, 100))), "media.adjust": (_R, ("direction", ("up", "down"))), "media.mute": (_R,),
    "lock.lock": (("door", DOORS), _T), "lock.unlock": (("door", DOORS), _T), "lock.status": (("door", DOORS),),
    "relay.on": (_R, ("device", RELAYS), _T), "relay.off": (_R, ("device", RELAYS), _T),
    "relay.run": (_R, ("device", RELAYS), ("duration", (1, 240)), ("unit", ("seconds", "minutes", "hours"))),
    "security.arm": (("mode", SECURITY),), "security.disarm": (),
    "vacuum.start": (_R, _T), "vacuum.dock": (),
}
