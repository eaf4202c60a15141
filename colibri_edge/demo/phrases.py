"""The sentence patterns of the demo task.  Data only; task.py gives them meaning, words.py has the vocabulary.

Owns: for each tool two lists of patterns (the first is for training, the second is held out and never seen in
training), and the wrappers around a command.  Refuses: drawing, splitting, JSON.

A pattern is a sentence with alternatives `[a|b|]` and slots `{light}`.  A leading `?` marks a question or a statement
(no "could you ..." in front of it), a leading `!` a terse form (no wrapper in front).  A pattern may be a pair
(pattern, fixed arguments).
"""

# Noun phrases.  {r} room as said, {in} "in the kitchen" / "on the porch", {d} device as said.
NPS = (
    (
        "the {r} {d}", "the {r} {d}", "the {d} {in}", "the {d} {in}", "the {d}", "my {r} {d}", "{r} {d}", "my {d}",
    ),
    (
        "the {d} over {in}", "the {d} that is {in}", "that {r} {d}", "our {r} {d}",
    ),
)

# Prefixes and suffixes of commands, prefixes of questions, joiners of two commands: for training, held out.
PREFIXES = (
    (
        "", "", "", "", "", "", "please ", "can you ", "could you ", "could you please ", "would you ",
        "can you please ", "hey, ", "hi, ", "hello, ", "ok, ", "i want you to ", "i'd like you to ",
        "i would like you to ", "go ahead and ", "computer, ", "hey house, ", "i need you to ", "will you ",
        "let's ", "now ", "just ", "quickly ", "so, ", "please could you ", "would you please ",
        "it would be nice if you could ", "are you able to ", "you should ", "time to ", "we want you to ",
        "make sure to ", "don't forget to ",
    ),
    (
        "", "", "", "hi, could you please ", "hey, would you ", "ok, now please ", "computer, can you ",
        "i'd like you to please ", "hello, i want you to ", "please just ",
    ),
)
SUFFIXES = (
    (
        "", "", "", "", "", "", "", " please", ", please", " for me", ", thanks", " thanks", " now",
        " for me please", ", ok?", " right now", ", thank you", " if you can", ", would you?", " immediately",
    ),
    (
        "", "", "", "", " now, please", " for me, thanks", ", thanks, please", " now, ok?",
    ),
)
ASK_PREFIXES = (
    (
        "", "", "", "", "hey, ", "hi, ", "ok, ", "computer, ", "so, ", "please, ", "hello, ",
    ),
    (
        "", "", "hi computer, ", "ok so, ",
    ),
)
JOINERS = (
    (
        " and ", " and ", " and then ", ", then ", ", and ", "; ", ". ", " and also ", ", also ", " then ",
        " and please ", ", after that ", " plus ",
    ),
    (
        ", and then ", ". then ", ", and also ", "; also ",
    ),
)

PATTERNS = {
    "light.on": ([
        "[turn on|switch on|put on|power on|activate] {light}", "[turn|switch|put|power] {light} on",
        "light up the {room}", "!{light} on", "illuminate the {room}", "[get|have] {light} [switched|turned] on",
        "{inroom}, [turn|switch] on {ldev}", "make it [bright|light] {inroom}", "[turn|switch] {ldev} on {inroom}",
        "[start|enable|fire up|flip on] {light}", "bring {light} on", "?it's [too|so] dark {inroom}",
        "?i need [some|] light {inroom}", "?i can't see anything {inroom}", "?i want {light} on",
        "?{light} should be on", "[turn on|switch on] {ldev} {inroom}", "!on with {light}",
        "give me [some|] light {inroom}", "?{light} [has|have] to be [switched|turned] on", "!lights on {inroom}",
        "let there be light {inroom}", "?i want light {inroom}", "hit the lights {room?}", "?i'd like {light} on",
        "?why is it so dark {inroom}", "!on {light}",
    ], [
        "have {ldev} {inroom} [turned|switched] on", "flip {light} on", "{inroom}, put {ldev} on",
        "?i would like {light} to be on", "?it's very dark {inroom}", "?we need [some|] light {inroom}",
        "[enable|put on|power on] {ldev} {inroom}",
    ]),
    "light.off": ([
        "[turn off|switch off|shut off|power off|deactivate|kill] {light}", "[turn|switch|put|power] {light} off",
        "!{light} off", "[get|have] {light} [switched|turned] off", "{inroom}, [turn|switch] off {ldev}",
        "[turn|switch] {ldev} off {inroom}", "[disable|cut|put out] {light}", "make it dark {inroom}",
        "?it's too bright {inroom}", "?nobody needs light {inroom}", "?i want {light} off", "?{light} should be off",
        "[turn off|switch off] {ldev} {inroom}", "!off with {light}", "!lights out {inroom}", "?{light} can go off",
        "?no more light {inroom}", "?{light} [has|have] to be [switched|turned] off",
        "?i don't need {light} any more", "!lights off {inroom}", "?i'd like {light} off", "!off {light}",
    ], [
        "have {ldev} {inroom} [turned|switched] off", "{inroom}, put {ldev} off", "?i would like {light} to be off",
        "?it's very bright {inroom}", "?we don't need {light} any more", "[disable|cut|power off] {ldev} {inroom}",
        "?{light} can be [switched|turned] off",
    ]),
    "light.set": ([
        "[dim|set|turn|put|bring|adjust|change] {light} to {pct}", "[dim|set] {ldev} to {pct} {inroom}",
        "[set|change|adjust] the brightness of {light} to {pct}", "make {light} {pct} bright",
        "[lower|reduce|dim] {light} [down |]to {pct}", "[raise|increase|turn up|brighten] {light} [up |]to {pct}",
        "!{light} {pct}", "!{light} to {pct}", "!{light} at {pct}", "{inroom}, [dim|set] {ldev} to {pct}",
        "?i want {light} at {pct}", "?{light} should be at {pct}", "[turn|dim] {light} down to {pct}",
        "set brightness to {pct} for {light}", "give me {pct} brightness {inroom}",
        "[turn|switch] on {light} at {pct}", "run {light} at {pct}", "set {light} at {pct} brightness",
        "put {light} on {pct}", "!{pct} for {light}",
        ("[set|turn|put] {light} to [half|half brightness]", {"brightness": 50}),
        ("dim {light} to half", {"brightness": 50}),
        ("[set|turn|put] {light} to [full|full brightness|maximum|max]", {"brightness": 100}),
        ("make {light} as bright as possible", {"brightness": 100}), "?{light} at {pct} would be nice",
        "i'd like {light} at {pct}", ("dim {light}", {"brightness": 30}),
        ("dim {ldev} {inroom}", {"brightness": 30}), ("make {light} darker", {"brightness": 30}),
        ("[brighten|make brighter] {light}", {"brightness": 100}), ("make {light} brighter", {"brightness": 100}),
        ("?{light} should be [darker|dimmed]", {"brightness": 30}), ("!{light} dimmed", {"brightness": 30}),
    ], [
        ("?i want {light} dimmed", {"brightness": 30}), ("?{light} should be brighter", {"brightness": 100}),
        "dim down {light} to {pct}", "[bring|adjust|change] {ldev} to {pct} {inroom}",
        "?i would like {light} to be at {pct}", "{inroom}, [turn|put] {ldev} to {pct}",
        "lower the brightness of {light} to {pct}", "?{light} should go to {pct}",
        "[reduce|increase] the brightness of {light} to {pct}", "!brightness {pct} for {light}",
    ]),
    "light.color": ([
        "[make|turn|set|change|paint|color] {light} {color}", "[set|change|switch|turn] {light} to {color}",
        "!{light} {color}", "[set|change] the color of {light} to {color}", "?i want {light} in {color}",
        "?{light} should be {color}", "{inroom}, [make|turn] {ldev} {color}",
        "[use|show] {color} [light|lighting] {inroom}", "give {light} a {color} [color|tone|glow]",
        "[make|set] {ldev} {color} {inroom}", "let {light} [shine|glow] {color}", "?i'd like {color} light {inroom}",
        "[light up|illuminate] the {room} in {color}", "!{color} {light}", "!{color} light {inroom}",
        "set {light} color to {color}", "?can {light} be {color}",
    ], [
        "switch the color of {light} to {color}", "?i would like {light} to be {color}", "let {light} be {color}",
        "[turn|change] {ldev} {inroom} to {color}", "{inroom}, set {ldev} to {color}",
        "?i want {color} light {inroom}",
    ]),
    "light.scene": ([
        "[activate|start|set|use|load|enable|turn on|switch on] the {scene} scene {room?}",
        "[activate|start|set|turn on] {scene} mode {room?}", "set the {room} to {scene}",
        "[switch|change] to [the |]{scene} scene {room?}", "!{scene} scene {room?}", "!{scene} mode {room?}",
        "?i want the {scene} scene {room?}", "?it's {scene} time {room?}", "?we want {scene} lighting {room?}",
        "prepare the {room} for {scene}", "[run|apply|pick|choose] the {scene} scene {room?}",
        "{inroom}, [start|set] the {scene} scene", "make it {scene} mode {room?}",
        "get the {room} ready for {scene} time", "go to {scene} mode {room?}",
    ], [
        "put the {room} in {scene} mode", "load {scene} mode {room?}", "?i would like the {scene} scene {room?}",
        "{inroom}, activate the {scene} scene", "change the {room} to the {scene} scene",
    ]),
    "blind.open": ([
        "[open|raise|pull up|roll up|lift|draw up] {blind}", "open up {blind}", "!{blind} open", "!{blind} up",
        "?i want {blind} open", "?{blind} should be open", "[put|move|bring|pull|roll] {blind} up",
        "{inroom}, [open|raise] {bdev}", "[open|raise] {bdev} {inroom}", "[get|have] {blind} opened",
        "let [some|the] [sun|daylight] in through {blind}", "[fully|completely] open {blind}",
        ("let the [sun|light|daylight] in {room?}", {"device": "blinds"}),
        ("let some [sun|light] in {room?}", {"device": "blinds"}), "?{blind} can go up", "?i'd like {blind} open",
    ], [
        "lift up {blind}", "[pull|move] up {bdev} {inroom}", "?i would like {blind} to be open",
        "{inroom}, get {bdev} opened", "?{blind} should go up", "have {bdev} {inroom} opened",
    ]),
    "blind.close": ([
        "[close|lower|pull down|roll down|shut|let down] {blind}", "close up {blind}", "!{blind} closed",
        "!{blind} down", "?i want {blind} closed", "?{blind} should be closed",
        "[put|move|bring|pull|roll] {blind} down", "{inroom}, [close|lower|shut] {bdev}",
        "[close|lower|shut] {bdev} {inroom}", "[get|have] {blind} closed", "keep the sun out with {blind}",
        "[fully|completely] close {blind}", "?{blind} can go down", "?i'd like {blind} closed",
    ], [
        "shut down {blind}", "[pull|move] down {bdev} {inroom}", "?i would like {blind} to be closed",
        "{inroom}, get {bdev} closed", "?{blind} should go down", "have {bdev} {inroom} closed",
    ]),
    "blind.set": ([
        "[set|move|put|bring|adjust|open|close|lower|raise] {blind} to {pct}", "[set|move] {bdev} to {pct} {inroom}",
        "!{blind} {pct}", "!{blind} at {pct}", "!{blind} to {pct}", "?i want {blind} at {pct}",
        "?{blind} should be at {pct}", "[set|change|adjust] the position of {blind} to {pct}", "open {blind} {pct}",
        "{inroom}, [set|move] {bdev} to {pct}", ("open {blind} [halfway|half way]", {"position": 50}),
        ("[close|lower|put] {blind} [halfway|half way]", {"position": 50}), "?i'd like {blind} at {pct}",
        "make {blind} {pct} open",
    ], [
        "?i would like {blind} to be at {pct}", "[adjust|bring] {bdev} {inroom} to {pct}", "change {blind} to {pct}",
        "{inroom}, put {bdev} to {pct}", "?{blind} should go to {pct}",
    ]),
    "blind.stop": ([
        "[stop|halt|hold|freeze] {blind}", "[stop|halt] {bdev} {inroom}", "!{blind} stop", "stop moving {blind}",
        "don't move {blind}", "{inroom}, [stop|halt] {bdev}", "leave {blind} where [it is|they are]",
        "make {blind} stop", "keep {blind} where it is",
    ], [
        "hold {bdev} {inroom}", "let {blind} stop", "{inroom}, hold {bdev}",
    ]),
    "climate.set": ([
        "[set|turn|put|change|adjust|bring] the [heating|temperature|thermostat|radiator] {room?} to {temp}",
        "[heat|warm|cool] the {room} [up |down |]to {temp}",
        "[set|turn] the {room} [heating|thermostat|temperature] to {temp}", "make it {temp} {room?}",
        "[set|put] the {room} to {temp}", "!{room} {temp}", "!heating {room?} {temp}", "?i want {temp} {room?}",
        "?it should be {temp} {room?}", "keep the {room} at {temp}",
        "[set|change] the target temperature {room?} to {temp}", "{inroom}, set the [heating|temperature] to {temp}",
        "[raise|lower|turn up|turn down|reduce|increase] the [temperature|heating] {room?} to {temp}",
        "?the {room} should be at {temp}", "hold {temp} {room?}", "!{temp} {inroom}", "get the {room} to {temp}",
        "set {temp} {inroom}", "?i'd like {temp} {room?}", "set the air conditioning {room?} to {temp}",
        "put the heating on {temp} {room?}", "!thermostat to {temp}", "set the climate {room?} to {temp}",
    ], [
        "bring the {room} to {temp}", "[adjust|change] the {room} [heating|thermostat] to {temp}",
        "?i would like it to be {temp} {room?}", "keep the temperature {room?} at {temp}",
        "{inroom}, put the heating to {temp}", "?the temperature {room?} should be {temp}",
        "let the {room} be at {temp}",
    ]),
    "climate.mode": ([
        "[set|switch|put|change] the [climate|thermostat|heating|air conditioning] {room?} to {mode} mode",
        "[set|switch] the {room} to {mode} mode", "[use|activate|start|enable] {mode} mode {room?}",
        "!climate {mode} {room?}", "put the {room} in {mode} mode", "?i want {mode} mode {room?}",
        ("[turn on|switch on|put on|power on|activate] the heating {room?}", {"mode": "heat"}),
        ("[turn|switch] the heating on {room?}", {"mode": "heat"}), ("start heating the {room}", {"mode": "heat"}),
        ("[turn off|switch off|shut off|deactivate|kill] the [heating|thermostat|air conditioning|climate] {room?}",
         {"mode": "off"}),
        ("[turn|switch] the [heating|air conditioning] off {room?}", {"mode": "off"}),
        ("[turn on|switch on|put on|power on|activate] the [air conditioning|ac|cooling] {room?}", {"mode": "cool"}),
        ("start cooling the {room}", {"mode": "cool"}), ("!heating on {room?}", {"mode": "heat"}),
        ("!heating off {room?}", {"mode": "off"}), ("stop [heating|cooling] the {room}", {"mode": "off"}),
        ("[save energy|be economical] {inroom}", {"mode": "eco"}),
        "change the mode of the [climate|thermostat] {room?} to {mode}",
        "make the thermostat {room?} use {mode} mode", ("[turn|switch] the {room} heating on", {"mode": "heat"}),
        ("[turn|switch] the {room} heating off", {"mode": "off"}),
        ("[turn on|switch on|put on|power on|activate] the {room} heating", {"mode": "heat"}),
        ("[turn off|switch off|shut off|power off|deactivate|kill] the {room} heating", {"mode": "off"}),
    ], [
        "change the {room} to {mode} mode", "enable {mode} mode for the thermostat {room?}",
        "?i would like {mode} mode {room?}", ("have the heating turned on {room?}", {"mode": "heat"}),
        ("get the heating {room?} turned off", {"mode": "off"}),
    ]),
    "climate.adjust": ([
        ("make it {deg} warmer {room?}", {"direction": "up"}),
        ("make it {deg} [cooler|colder] {room?}", {"direction": "down"}),
        ("[raise|increase|turn up] the [temperature|heating|thermostat] {room?} by {deg}", {"direction": "up"}),
        ("[turn up] the heating {deg} {room?}", {"direction": "up"}),
        ("[lower|reduce|decrease|turn down] the [temperature|heating|thermostat] {room?} by {deg}",
         {"direction": "down"}),
        ("[warm|heat] the {room} by {deg}", {"direction": "up"}),
        ("cool the {room} by {deg}", {"direction": "down"}), ("!{deg} warmer {room?}", {"direction": "up"}),
        ("!{deg} [cooler|colder] {room?}", {"direction": "down"}),
        ("?i want it {deg} warmer {room?}", {"direction": "up"}),
        ("?i want it {deg} [cooler|colder] {room?}", {"direction": "down"}),
        ("turn the heating {room?} up by {deg}", {"direction": "up"}),
        ("turn the heating {room?} down by {deg}", {"direction": "down"}),
        ("?it's {deg} too [warm|hot] {room?}", {"direction": "down"}),
        ("?it's {deg} too cold {room?}", {"direction": "up"}),
        ("add {deg} to the temperature {room?}", {"direction": "up"}),
        ("take {deg} off the temperature {room?}", {"direction": "down"}),
        ("make the {room} {deg} warmer", {"direction": "up"}),
        ("make the {room} {deg} [cooler|colder]", {"direction": "down"}),
        ("make it [a bit |]warmer {room?}", {"direction": "up", "degrees": 1}),
        ("make it [a bit |][cooler|colder] {room?}", {"direction": "down", "degrees": 1}),
        ("!warmer {room?}", {"direction": "up", "degrees": 1}),
        ("!colder {room?}", {"direction": "down", "degrees": 1}),
        ("?it's [too |so |]cold {room?}", {"direction": "up", "degrees": 1}),
        ("?it's too [warm|hot] {room?}", {"direction": "down", "degrees": 1}),
        ("[turn up|increase|raise] the [heating|temperature] {room?}", {"direction": "up", "degrees": 1}),
        ("?i'm [cold|freezing] {room?}", {"direction": "up", "degrees": 1}),
        ("turn the heating up {room?}", {"direction": "up", "degrees": 1}),
        ("turn the heating down {room?}", {"direction": "down", "degrees": 1}),
        ("?it's freezing {room?}", {"direction": "up", "degrees": 1}),
        ("!too [hot|warm] {room?}", {"direction": "down", "degrees": 1}),
        ("[turn down|reduce|lower] the [heating|temperature] {room?}", {"direction": "down", "degrees": 1}),
    ], [
        ("?i would like it {deg} warmer {room?}", {"direction": "up"}),
        ("?i would like it to be {deg} cooler {room?}", {"direction": "down"}),
        ("bring the temperature {room?} up by {deg}", {"direction": "up"}),
        ("bring the temperature {room?} down by {deg}", {"direction": "down"}),
        ("?i want it a bit warmer {room?}", {"direction": "up", "degrees": 1}),
        ("?i'm too hot {room?}", {"direction": "down", "degrees": 1}),
        ("increase the {room} temperature by {deg}", {"direction": "up"}),
        ("reduce the {room} temperature by {deg}", {"direction": "down"}),
    ]),
    "fan.speed": ([
        "[set|turn|put|switch|change] the fan {room?} to {speed}", "[set|turn] the {room} fan to {speed} [speed|]",
        "!fan {speed} {room?}", "run the fan {room?} [at|on] {speed} [speed|]",
        "[set|change] the fan speed {room?} to {speed}", "?i want the fan {room?} [at|on] {speed}",
        "{inroom}, set the fan to {speed}", "put the {room} fan on {speed}",
        "[set|change] the speed of the fan {room?} to {speed}", "make the fan {room?} run at {speed} speed",
        "!fan speed {speed} {room?}", "let the fan {room?} spin at {speed} speed",
    ], [
        "change the {room} fan to {speed}", "?i would like the fan {room?} on {speed}",
        "{inroom}, run the fan at {speed} speed", "let the {room} fan run at {speed} speed",
    ]),
    "sensor.read": ([
        "?what's the {level} {room?}", "?what is the {level} {room?}", "?how [high|low] is the {level} {room?}",
        "?tell me the {level} {room?}", "[read|check|show me|get] the {level} {room?}", "!{level} {inroom}",
        "!{room} {level}", "?what {level} do we have {inroom}", "[read|check] the {room} {level}",
        "give me the {level} {room?}", ("?how [warm|cold|hot] is it {room?}", {"kind": "temperature"}),
        ("?how [humid|damp] is it {room?}", {"kind": "humidity"}),
        ("?how bright is it {room?}", {"kind": "light level"}), ("?how loud is it {room?}", {"kind": "noise"}),
        ("?is there [any|a|some|] {event} {room?}", {}), ("?was any {event} detected {room?}", {}),
        ("?has there been any {event} {room?}", {}), ("?do you [see|detect] any {event} {room?}", {}),
        "check for {event} {room?}", "?what does the {level} sensor {room?} say",
        "?can you tell me the {level} {room?}", "?what's the {room} {level}", "?i want to know the {level} {room?}",
        "[read|check] the {level} sensor {room?}", "?do you know the {level} {room?}",
        "?let me know the {level} {room?}", ("?is anybody moving {inroom}", {"kind": "motion"}),
        ("?is it [warm|cold|hot] {inroom}", {"kind": "temperature"}),
        ("?is it [warm|cold|hot] [inside|in here|at home]", {"kind": "temperature"}),
        ("?how [warm|cold|hot] is it [inside|in here|at home]", {"kind": "temperature"}),
        "?what's the {level} [inside|in here|at home]", ("?how many degrees is it {room?}", {"kind": "temperature"}),
        "?what is the current {level} {room?}",
    ], [
        "?i would like to know the {level} {room?}", "?what is the {room} {level} now",
        "?could you tell me what the {level} is {room?}", "show the {room} {level}", "?how is the {level} {room?}",
        "?has any {event} been detected {room?}", "?what {level} does the sensor {room?} show",
        "get me the {room} {level}",
    ]),
    "sensor.alert": ([
        ("[warn|alert|tell|notify] me [when|if] the {num} {room?} [goes|rises|climbs|is|gets] above {value}",
         {"condition": "above"}),
        ("[warn|alert|tell|notify] me [when|if] the {num} {room?} [goes|drops|falls|is|gets] below {value}",
         {"condition": "below"}),
        ("[warn|alert|tell|notify] me [when|if] the {room} {num} [goes|rises|is] [above|over] {value}",
         {"condition": "above"}),
        ("[warn|alert|tell|notify] me [when|if] the {room} {num} [goes|drops|is] [below|under] {value}",
         {"condition": "below"}),
        ("let me know [when|if] the {num} {room?} is [higher|more|greater] than {value}", {"condition": "above"}),
        ("let me know [when|if] the {num} {room?} is [lower|less] than {value}", {"condition": "below"}),
        ("[warn|alert|tell|notify] me [when|if] there is [any|] {event} {room?}", {"condition": "detected"}),
        ("let me know if you [see|detect] {event} {room?}", {"condition": "detected"}),
        ("send me an alert [when|if] there is {event} {room?}", {"condition": "detected"}),
        ("send [me|] an alert [when|if] the {num} {room?} [exceeds|passes] {value}", {"condition": "above"}),
        ("if the {num} {room?} [goes|rises] above {value}, [tell|warn|alert] me", {"condition": "above"}),
        ("if the {num} {room?} [drops|falls] below {value}, [tell|warn|alert] me", {"condition": "below"}),
        ("watch for {event} {room?}", {"condition": "detected"}),
        ("set an alert for {num} {room?} above {value}", {"condition": "above"}),
        ("set an alert for {num} {room?} below {value}", {"condition": "below"}),
        ("?i want to know [when|if] the {num} {room?} is above {value}", {"condition": "above"}),
        ("?i want to know [when|if] the {num} {room?} is below {value}", {"condition": "below"}),
        ("?i want an alert when there is {event} {room?}", {"condition": "detected"}),
    ], [
        ("let me know when the {num} {room?} [goes|rises] above {value}", {"condition": "above"}),
        ("let me know when the {num} {room?} [drops|falls] below {value}", {"condition": "below"}),
        ("send me an alert if the {room} {num} is below {value}", {"condition": "below"}),
        ("when the {num} {room?} exceeds {value}, notify me", {"condition": "above"}),
        ("if there is {event} {room?}, [warn|tell] me", {"condition": "detected"}),
        ("alert me if you detect {event} {room?}", {"condition": "detected"}),
    ]),
    "device.status": ([
        "?is {any1} [on|running|off|switched on|active]", "?are {anyn} [on|off|open|closed|running]",
        "?what's the [status|state] of {any}", "?check [if|whether] {any1} is [on|off|running]",
        "?did i [leave|forget] {any} on", "?tell me [if|whether] {any1} is [on|off|running]",
        "show me the [status|state] of {any}", "!{any} status", "?what is {any} doing",
        "get the [status|state] of {any}", "?is {any1} still [on|running]", "check {any}",
        "?what is the [status|state] of {any}", "?is {any1} [working|turned on|turned off]",
        "?is {sdev} [on|off|running|still on] {inroom}", "?are {pdev} [on|off|open|closed|still on] {inroom}",
        "?{inroom}, is {sdev} on", ("?are the lights on", {"device": "light"}),
        ("?is there a light on {room?}", {"device": "light"}), "check the [status|state] of {any}",
    ], [
        "?is {any1} still [off|active]", "?is {sdev} [active|turned on] {inroom}", "?did i leave {any} running",
        "?i want to know if {any1} is [on|off]", "?tell me the status of {any}",
        "?are {pdev} [active|switched on] {inroom}", "?are {anyn} still [on|open]", "give me the state of {any}",
    ]),
    "energy.report": ([
        "?how much [energy|power|electricity] did we use {period}",
        "?how much [energy|electricity] have we used {period}",
        "[show|give|tell] me the energy [report|usage|consumption] for {period}", "!energy [report|usage] {period}",
        "?what [was|is] our [energy|power] consumption {period}", "?what was the electricity usage {period}",
        "report the energy use for {period}", "?how much did the house consume {period}",
        "[get|read] the energy [report|usage] for {period}", "?how many kilowatt hours did we use {period}",
        "!power consumption {period}", "?what did we use in electricity {period}",
        "?how is our energy usage {period}",
    ], [
        "show the electricity [usage|report] for {period}", "?how much power have we used {period}",
        "?what is the energy consumption for {period}", "?tell me how much energy we used {period}",
    ]),
    "timer.set": ([
        "[set|start|create|make|run] a timer for {dur}", "[set|start] a {durn} timer",
        "[set|start|create] a {label} timer for {dur}", "[set|start] a timer for {dur} for the {label}",
        "!timer {dur}", "!{label} timer {dur}", "count down {dur}", "count down from {dur}",
        "?i need a timer for {dur}", "!{durn} timer", "!timer for {dur}", "give me a {durn} timer", "time {dur}",
        "time {dur} for the {label}", "let me know in {dur}", "[set|start] a {durn} timer for the {label}",
        "?the {label} needs {dur}", "put {dur} on the timer", "set the timer to {dur}",
        "set the {label} timer to {dur}", "tell me when {dur} are over", "?i want a {durn} timer",
        "start a countdown of {dur}", "wake me in {dur}", "?remind me in {dur}", "set timer {dur}",
        "start a timer of {dur} called {label}", "?i need a {label} timer for {dur}",
    ], [
        "create a timer of {dur}", "create a {durn} timer for the {label}", "?i would like a timer for {dur}",
        "start the {label} timer with {dur}", "put {dur} on the {label} timer", "make a {durn} timer",
        "count down {dur} for the {label}", "give me a timer for {dur}",
    ]),
    "timer.cancel": ([
        "[cancel|stop|delete|remove|end|clear] the timer", "[cancel|stop|delete|remove|end|clear] the {label} timer",
        "[cancel|stop] my timer", "[cancel|stop] my {label} timer", "!cancel timer", "!stop {label} timer",
        "turn off the timer", "turn off the {label} timer", "?i don't need the timer any more",
        "?i don't need the {label} timer any more", "forget the timer", "forget the {label} timer",
        "stop the countdown", "cancel the timer for the {label}", "get rid of the timer",
        "get rid of the {label} timer",
    ], [
        "end my {label} timer", "remove my timer", "delete the timer for the {label}",
        "?we don't need the {label} timer any more", "switch off the {label} timer",
    ]),
    "timer.left": ([
        "?how much time is left on the timer", "?how much time is left on the {label} timer",
        "?how long [until|till] the timer [ends|is done|rings]",
        "?how long [until|till] the {label} timer [ends|is done|rings]", "!timer left", "[check|show] the timer",
        "[check|show] the {label} timer", "?how many minutes are left on the timer",
        "?how many minutes are left on the {label} timer", "?what's left on the timer",
        "?what's left on the {label} timer", "?when is the {label} timer done", "?when is the timer done",
        "?how long does the timer still run", "?how long does the {label} timer still run",
        "?is the {label} timer done", "?is the timer done", "?how much longer for the {label}",
    ], [
        "?how many minutes until the {label} timer rings", "?how much time does the {label} timer still have left",
        "?how long is left on the timer", "?tell me how much time is left on the {label} timer",
    ]),
    "alarm.set": ([
        "[set|create|make|add] an alarm {at}", "[set|create] an alarm for {clock}", "wake me [up|] {at}",
        "!alarm {clock}", "!alarm {at}", "?i want to [get|wake] up {at}", "?i have to get up {at}",
        "[set|put] the alarm to {clock}", "set my alarm for {clock}", "?i need an alarm for {clock}",
        "get me out of bed {at}", "ring the alarm {at}", "set an alarm clock for {clock}",
        "?i need to be awake {at}", "let the alarm ring {at}", "?wake up call {at}",
    ], [
        "add an alarm for {clock}", "?i would like to wake up {at}", "make the alarm ring {at}",
        "?i need to get up {at}", "put my alarm to {clock}",
    ]),
    "alarm.cancel": ([
        "[cancel|delete|remove|turn off|switch off|clear] the alarm",
        "[cancel|delete|remove|turn off] the {clock} alarm", "[cancel|delete|remove] the alarm {at}",
        "[cancel|delete|remove] the alarm for {clock}", "?don't wake me [up|]", "?don't wake me [up|] {at}",
        "[cancel|stop|forget] my alarm", "?i don't need the alarm any more", "!alarm off", "?no alarm {at}",
        "?i don't need the {clock} alarm", "[cancel|delete] my {clock} alarm", "stop the alarm",
        "?i don't need an alarm {at}",
    ], [
        "clear my alarm", "switch off the {clock} alarm", "remove my alarm for {clock}",
        "?we don't need the alarm {at}", "forget the alarm {at}",
    ]),
    "reminder.set": ([
        "remind me to {task} {at}", "remind me to {task}", "remind me {at} to {task}",
        "[set|create|add|make] a reminder to {task} {at}", "[set|create|add] a reminder to {task}",
        "[set|create] a reminder {at} to {task}", "?don't let me forget to {task}", "?i need to remember to {task}",
        "tell me to {task} {at}", "?i have to {task} {at}, remind me", "{at}, remind me to {task}",
        "!reminder: {task} {at}", "!reminder: {task}", "?i must not forget to {task} {at}",
        "note that i have to {task} {at}", "?i want a reminder to {task} {at}",
    ], [
        "make a reminder {at} to {task}", "?i would like a reminder to {task} {at}",
        "?don't let me forget to {task} {at}", "tell me {at} to {task}", "?i need to remember to {task} {at}",
    ]),
    "media.play": ([
        "play {music} {room?}", "play some {mass} {room?}", "[start|put on|turn on|stream] {music} {room?}",
        "?i want to [hear|listen to] {music} {room?}", "!{music} {inroom}", "{inroom}, play {music}",
        "let me hear {music} {room?}", "[play|start|stream] {music} on the {room} speaker[s|]",
        "?can i [hear|have] {music} {room?}", "start playing {music} {room?}", "play me {music} {room?}",
        "?how about some {mass} {room?}", "?we would like to hear {music} {room?}", "have {music} play {room?}",
        "!some {mass} {room?}", "let's hear {music} {room?}", "?i'd like [some |]{mass} {room?}",
        "play {genre} music {room?}", ("[turn|switch|put] the music on {room?}", {"query": "music"}),
        ("[turn on|start|switch on] the music {room?}", {"query": "music"}), ("!music {room?}", {"query": "music"}),
        ("?i want music {room?}", {"query": "music"}), "let's listen to some {mass} {room?}",
        "play a bit of {mass} {room?}", "put some {mass} on {room?}",
    ], [
        "?i would like to listen to {music} {room?}", "let me listen to some {mass} {room?}",
        "{inroom}, put on {music}", "put {music} on the {room} speakers", "?can i listen to some {mass} {room?}",
        "have some {mass} playing {room?}",
    ]),
    "media.pause": ([
        "[pause|stop|halt] the [music|playback|song|media|film|movie] {room?}", "[pause|stop] playing {room?}",
        "!pause {room?}", "stop the {room} music", "pause the {room} [music|speakers]", "?no more music {room?}",
        "turn off the music {room?}", "hold the music {room?}", "!music off {room?}", "pause what's playing {room?}",
        "[switch|turn] the music off {room?}", "stop playback {room?}", "!pause the {room}",
        "[pause|stop] it {room?}", "{inroom}, [pause|stop] the music",
    ], [
        "halt playback {room?}", "{inroom}, pause the song", "stop the song playing {room?}",
        "switch off the music {room?}", "hold the song {room?}",
    ]),
    "media.resume": ([
        "[resume|continue|unpause] the [music|playback|song|media|film|movie] {room?}",
        "[resume|continue] playing {room?}", "!resume {room?}", "resume the {room} [music|speakers]",
        "go on with the music {room?}", "carry on playing {room?}", "keep playing {room?}",
        "continue where we stopped {room?}", "{inroom}, [resume|continue] the music", "unpause {room?}",
        "?the music can go on {room?}", "play on {room?}", "continue playback {room?}",
        "let the music go on {room?}",
    ], [
        "{inroom}, resume the song", "carry on with the music {room?}", "unpause the {room} music",
        "go on with playback {room?}", "keep the music going on {room?}",
    ]),
    "media.next": ([
        "[skip|next] [this|the] [song|track] {room?}", "play the next [song|track|one] {room?}", "!next {room?}",
        "!skip {room?}", "!next [song|track] {room?}", "[go|jump|skip] to the next [song|track] {room?}",
        "?i don't like this [song|track] {room?}", "play [another|a different] [song|track] {room?}",
        "{inroom}, skip this [song|track]", "skip it {room?}", "?next one please {room?}",
        "change the [song|track] {room?}", "?can we have another [song|track] {room?}",
        "move on to the next [song|track] {room?}",
    ], [
        "jump to another song {room?}", "{inroom}, play the next track", "?i want the next song {room?}",
        "let me hear the next track {room?}", "?i don't want this song {room?}",
    ]),
    "media.volume": ([
        "[set|turn|put|change|adjust|bring] the volume {room?} to {vol}", "[set|turn] the {room} volume to {vol}",
        "!volume {vol} {room?}", "!volume {room?} {vol}",
        "[turn|set] the [music|speakers|tv|radio] {room?} to volume {vol}", "?i want the volume {room?} at {vol}",
        "{inroom}, set the volume to {vol}", "[raise|lower|increase|reduce] the volume {room?} to {vol}",
        "turn the volume {room?} [up|down] to {vol}", "make the volume {vol} {room?}",
        "play at volume {vol} {room?}", "!{room} volume {vol}", "?the volume {room?} should be {vol}",
        "put the music on {vol} {room?}", "turn [up|down] the volume {room?} to {vol}",
        "turn the music [up|down] to {vol} {room?}",
    ], [
        "change the {room} volume to {vol}", "?i would like the volume {room?} at {vol}",
        "bring the volume {room?} down to {vol}", "{inroom}, put the volume to {vol}",
        "adjust the {room} volume to {vol}",
    ]),
    "media.adjust": ([
        ("turn the [volume|music|sound] up {room?}", {"direction": "up"}),
        ("turn up the [volume|music|radio|tv|sound] {room?}", {"direction": "up"}),
        ("turn down the [volume|music|radio|tv|sound] {room?}", {"direction": "down"}),
        ("turn the [volume|music|sound] down {room?}", {"direction": "down"}),
        ("!louder {room?}", {"direction": "up"}), ("!quieter {room?}", {"direction": "down"}),
        ("make it louder {room?}", {"direction": "up"}), ("make it quieter {room?}", {"direction": "down"}),
        ("!volume up {room?}", {"direction": "up"}), ("!volume down {room?}", {"direction": "down"}),
        ("?it's too loud {room?}", {"direction": "down"}), ("?it's too quiet {room?}", {"direction": "up"}),
        ("?the music {room?} is too loud", {"direction": "down"}),
        ("?the music {room?} is too quiet", {"direction": "up"}), ("turn it up {room?}", {"direction": "up"}),
        ("turn it down {room?}", {"direction": "down"}),
        ("[raise|increase] the volume {room?}", {"direction": "up"}),
        ("[lower|reduce] the volume {room?}", {"direction": "down"}),
        ("?i can't hear the [music|tv|radio] {room?}", {"direction": "up"}),
        ("play the music [a bit |]louder {room?}", {"direction": "up"}),
        ("play the music [a bit |]quieter {room?}", {"direction": "down"}),
        ("make the [music|sound] louder {room?}", {"direction": "up"}),
        ("make the [music|sound] quieter {room?}", {"direction": "down"}),
    ], [
        ("make the {room} music louder", {"direction": "up"}),
        ("make the {room} music quieter", {"direction": "down"}), ("?i want it louder {room?}", {"direction": "up"}),
        ("?the sound {room?} is too loud", {"direction": "down"}),
        ("bring the volume up {room?}", {"direction": "up"}),
        ("{inroom}, turn down the sound", {"direction": "down"}),
    ]),
    "media.mute": ([
        "[mute|silence] the [music|speakers|sound|tv|radio] {room?}", "!mute {room?}", "mute the {room}",
        "turn the sound off {room?}", "turn off the sound {room?}", "!sound off {room?}", "?i want silence {room?}",
        "make it quiet {room?}", "no sound {room?}", "mute everything {room?}", "{inroom}, mute the [music|sound]",
        "silence the {room}", "cut the sound {room?}",
    ], [
        "{inroom}, silence the speakers", "switch off the sound {room?}", "put the {room} on mute",
        "?i want it quiet {room?}", "mute the {room} sound",
    ]),
    "lock.lock": ([
        "lock {door}", "lock up {door}", ("lock up the house", {"door": "all"}),
        ("lock [everything|the house]", {"door": "all"}), "!{door} lock", "[make sure|see that] {door} is locked",
        "[bolt|secure] {door}", "?i want {door} locked", "[get|have] {door} locked", "put the lock on {door}",
        "?{door} should be locked", "keep {door} locked", "?{door} must be locked", "?i'd like {door} locked",
        "!lock on {door}",
    ], [
        "?i would like {door} to be locked", "secure the lock on {door}", "?see that {door} gets locked",
        "?{door} has to be locked",
    ]),
    "lock.unlock": ([
        "unlock {door}", "!{door} unlock", "[make sure|see that] {door} is unlocked", "[unbolt|release] {door}",
        "?i want {door} unlocked", "[get|have] {door} unlocked", "open the lock on {door}",
        "?{door} should be unlocked", "let them in through {door}", "let me in through {door}",
        "?i'd like {door} unlocked", "release the lock on {door}", "open {door}",
    ], [
        "?i would like {door} to be unlocked", "?see that {door} gets unlocked", "?{door} has to be unlocked",
        "let us in through {door}",
    ]),
    "lock.status": ([
        "?is {door} [locked|unlocked|open|closed]", ("?is [everything|the house] locked", {"door": "all"}),
        "?did i lock {door}", "check [if|whether] {door} is [locked|unlocked|open]",
        "?what's the [status|state] of {door}", "tell me [if|whether] {door} is [locked|open|closed]",
        "!{door} status", "?have i locked {door}", "check {door}", "?is {door} still [open|locked|unlocked]",
        "?did i forget to lock {door}", "check the lock on {door}", "?did someone unlock {door}",
        "?is the lock on {door} closed", "?is {door} really [closed|open]", "?have i forgotten {door}",
    ], [
        "?i want to know if {door} is locked", "?have i forgotten to lock {door}", "?tell me the status of {door}",
        "?have you locked {door}", "?did i leave {door} [open|unlocked]", "?is {door} really locked",
    ]),
    "relay.on": ([
        "[turn on|switch on|put on|power on|activate] {relay}", "[turn|switch|put|power] {relay} on", "!{relay} on",
        "[start|enable|fire up|flip on|run] {relay}", "[get|have] {relay} [switched|turned] on",
        "{inroom}, [turn|switch] on {rdev}", "[turn|switch] {rdev} on {inroom}", "?i want {relay} on",
        "?{relay} should be on", "get {relay} going", "let {relay} run", "?i'd like {relay} on",
        "[turn on|switch on] {rdev} {inroom}", "?{relay} [has|have] to be [switched|turned] on", "?i need {relay}",
        "!on {relay}", "give power to {relay}",
    ], [
        "have {rdev} {inroom} [turned|switched] on", "{inroom}, put {rdev} on", "?i would like {relay} to be on",
        "[enable|power on|start] {rdev} {inroom}", "?i need {relay} on", "get {relay} running",
    ]),
    "relay.off": ([
        "[turn off|switch off|shut off|power off|deactivate|kill] {relay}", "[turn|switch|put|power] {relay} off",
        "!{relay} off", "[stop|disable|cut|shut down] {relay}", "[get|have] {relay} [switched|turned] off",
        "{inroom}, [turn|switch] off {rdev}", "[turn|switch] {rdev} off {inroom}", "?i want {relay} off",
        "?{relay} should be off", "?{relay} can go off", "?i don't need {relay} any more", "?i'd like {relay} off",
        "[turn off|switch off] {rdev} {inroom}", "?{relay} [has|have] to be [switched|turned] off", "!off {relay}",
        "cut the power to {relay}",
    ], [
        "have {rdev} {inroom} [turned|switched] off", "{inroom}, put {rdev} off", "?i would like {relay} to be off",
        "?we don't need {relay} any more", "[disable|stop|power off] {rdev} {inroom}",
    ]),
    "relay.run": ([
        "run {relay} for {dur}", "[turn on|switch on|start|activate] {relay} for {dur}",
        "[turn|switch|put] {relay} on for {dur}", "!{relay} for {dur}", "let {relay} run for {dur}",
        "{inroom}, run {rdev} for {dur}", "run {rdev} {inroom} for {dur}", "?i want {relay} on for {dur}",
        "keep {relay} [on|running] for {dur}", "for {dur}, run {relay}", "power {relay} for {dur}",
        "?{relay} should run for {dur}", "!{relay} on for {dur}", "operate {relay} for {dur}",
    ], [
        "?i would like {relay} to run for {dur}", "{inroom}, keep {rdev} running for {dur}",
        "start {rdev} {inroom} for {dur}", "?{relay} should be on for {dur}", "for {dur}, keep {relay} on",
    ]),
    "security.arm": ([
        "[arm|activate|set|enable|turn on] the [alarm system|security system|security] in {arm} mode",
        "[arm|activate] the [alarm system|security system]  for {arm}", "set security to {arm}", "!arm {arm}",
        "switch the alarm system to {arm} mode", "put the security system in {arm} mode",
        "arm the house in {arm} mode", "!security {arm} mode",
        ("?[i'm|we're] leaving, arm the house", {"mode": "away"}),
        ("?[i'm|we're] [leaving|going out|off to work]", {"mode": "away"}),
        ("?[i'm|we're] going to bed", {"mode": "night"}), ("arm the [house|alarm system]", {"mode": "away"}),
        ("?[i'm|we're] going to bed, arm the house", {"mode": "night"}),
        "set the [alarm system|security system] to {arm}", "change security to {arm} mode",
        "use {arm} mode for the [alarm system|security system]", "?i want the alarm system in {arm} mode",
        "?the house should be armed in {arm} mode",
    ], [
        "enable security in {arm} mode", "arm security for {arm}", "change the security system to {arm} mode",
        "?i want the house armed in {arm} mode", "put the alarm system to {arm}",
    ]),
    "security.disarm": ([
        "disarm the [alarm system|security system|house|security]",
        "[turn off|switch off|deactivate|disable] the [alarm system|security system|security]", "!disarm",
        "!security off", "?i'm home, disarm the [house|alarm system]", "stop the security system",
        "[turn|switch] the [alarm system|security system] off", "?we're home, turn off the alarm system",
        "?you can disarm the house", "disarm everything", ("?i'm [back|home]", {}), "?we're [back|home]",
        "take the house out of security mode", "shut off the alarm system",
        "?we don't need the security system any more",
    ], [
        "disarm it", "?i'm home, switch off the security system", "?i don't need the alarm system any more",
        "?we're home, disarm the security system", "power off the security system",
    ]),
    "vacuum.start": ([
        "[vacuum|hoover] the {room}", "[start|run|launch] the [vacuum|vacuum cleaner|robot vacuum|robot] {room?}",
        "send the [robot|vacuum] to the {room}", "clean the floor {room?}",
        "let the [robot|vacuum] clean the {room}", "!vacuum {room?}", "clean the {room} floor",
        "?the {room} needs [vacuuming|cleaning]", "start vacuuming {room?}", "start cleaning the {room}",
        "have the {room} vacuumed", "?the floor {inroom} is dirty",
        "[turn on|activate] the [vacuum|robot vacuum] {room?}", "vacuum {inroom}", "clean up the {room}",
        "?the {room} is dirty",
    ], [
        "let the robot vacuum the {room}", "?the {room} floor needs cleaning", "have the robot clean the {room}",
        "?i want the {room} vacuumed", "send the vacuum cleaner to the {room}",
    ]),
    "vacuum.dock": ([
        "[dock|park] the [vacuum|robot|robot vacuum|vacuum cleaner]",
        "[send|bring] the [vacuum|robot|robot vacuum] [home|back|back home|back to its dock]",
        "stop [the vacuum|vacuuming|the robot vacuum]", "!dock vacuum",
        "return the [vacuum|robot] to its [dock|base]", "the [robot|vacuum] should go back to its [dock|base]",
        "stop the [vacuum|robot]", "[turn off|deactivate] the [vacuum|robot vacuum|vacuum cleaner]",
        "?the [robot|vacuum] can go home", "tell the [robot|vacuum] to go [home|back to its base]",
        "put the [robot|vacuum] back on its dock",
    ], [
        "bring the robot vacuum back to its base", "park the vacuum cleaner on its dock",
        "?the vacuum should return to its base", "tell the vacuum cleaner to go back home",
    ]),
}

# What no tool does.  Training, held out.  A slot names a list of REFUSAL_WORDS, which has its own two lists.
REFUSAL = {"error": "no such tool"}
REFUSALS = ([
    "[order|buy|get] [me |us |]{food}", "[order|buy] {food} for [dinner|lunch|me]", "book [me |us |]{booking}",
    "[send|write] {message} to {person}", "[call|phone|ring] {person}", "tell me a [joke|story|riddle]",
    "[sing|write] [me |]a [song|poem|haiku] about {topic}", "?what's the weather {when}", "?will it rain {when}",
    "?who is the {who}", "?who [invented|discovered] {topic}", "?what is the capital of {country}",
    "translate {word} [into|to] {language}", "?what is {a} [times|plus|minus] {a}",
    "?how do i [cook|make|bake] {food}", "?how are you", "?who are you", "?what's your name",
    "search the [web|internet] for {topic}", "[explain|describe] {topic} [to me|]",
    "[start|unlock|wash|refuel|park] the car", "drive me to {place}", "navigate to {place}", "?where is {place}",
    "[post|share] {message} on [facebook|the internet]", "transfer {a} dollars to {person}",
    "?what's the [price|stock price] of {thing}", "[download|install] {thing}", "?what day is it [today|]",
    "?what's the meaning of life", "add {food} to the shopping list", "?what's on my calendar {when}",
    "[walk|groom|train] the [dog|cat]", "do my [homework|taxes]", "?how tall is {who2}", "?how old is {who2}",
    "read me {reading}", "[wash|iron|fold] my [clothes|shirts]", "[make|cook|bake] [me |]{food}", "?do you love me",
    "?i love you", "?hello", "?hi there", "?good morning", "?thanks", "?what can you do", "?why is the sky blue",
    "?when is {event2}", "find me {booking}", "[charge|find] my phone", "print {reading}",
    "{open} the {nonsense} {inroom}", "turn on the {nonsense}", "[turn off|close|start|play] the {nonsense}",
    "set the {nonsense} to {a}", "take a [photo|picture] of {person}", "[fly|land] the drone",
    "[hack|delete] {thing}", "?which team won {when}", "?how far is it to {place}", "mow the [lawn|grass]",
    "[cut|wash] my hair", "?do i need an umbrella {when}", "?is there any {food} left", "paint the {room}",
    "[rent|sell|buy] {thing}", "?how many people live in {country}", "?what time is it", "?recommend {reading}",
    "deliver {food} to {person}", "?can you [dance|swim|fly|cook|sing]", "!{food}", "!{country}",
    "?i'm [hungry|sad|bored|tired]", "?what should i [eat|wear] {when}", "?how much is {food}", "reserve {booking}",
    "?who [painted|built|directed|sang] {reading}", "?what do you think about {topic}", "?what's {a} percent of {a}",
    "fetch me {food}", "[message|email] {person}", "?where does {person} live", "?who is {who2}",
    "calculate {a} [times|minus] {a}",
    "?tell me something about {topic}", "?when was {topic} invented", "?how heavy is {who2}",
    "?what does {thing} cost",
    "?where do i get {food}", "?how many people speak {language}", "?what does {word} mean in {language}",
    "bring me to {place}",
    "bring me my [shoes|glasses|keys]", "[pay|delete|copy|answer] {message}",
    "[build|draw|paint] [me |]a [house|picture]", "?what's new in {country}",
    "?is it [snowing|raining|sunny] {when}", "?how long does it take to {place}", "?what happened {when}",
    "[teach|show] me {language}",
    "?i need {food}", "?i want [to eat |]{food}", "?i'd like {food}, please", "?i want to [visit|see] {country}",
    "?i need {booking}",
    "?could you [ask|visit|help] {person}", "?can you [ask|pick up|help] {person}",
], [
    "?who wrote {reading}", "bring me {food}", "?how much does {food} cost", "?where can i buy {food}",
    "cancel {booking}", "forward {message} to {person}", "?what do you know about {topic}",
    "?how is the weather {when}", "?is it going to rain {when}", "?what language do they speak in {country}",
    "tell me about {topic}", "say {word} in {language}", "?how do you say {word} in {language}",
    "take me to {place}", "?what is {a} divided by {a}", "text {person}", "?when was {who2} born",
    "install {thing} on my phone", "?i want to buy {thing}", "?i would like [to order |]{food}",
    "?could you drive {person} to {place}", "write {message}",
])
REFUSAL_WORDS = {
    "food": ((
        "a pizza", "some sushi", "two burgers", "a sandwich", "some milk", "eggs", "a chocolate cake", "dinner",
        "a salad", "some bread", "noodles", "ice cream", "beer", "a bottle of wine", "pancakes", "coffee beans",
        "some fruit", "a steak", "soup", "chicken", "cheese", "apples",
    ), (
        "a burger", "pasta", "a cake", "some wine", "a coffee",
    )),
    "booking": ((
        "a flight to paris", "a hotel in rome", "a table for two", "a taxi", "a train to berlin", "a cinema ticket",
        "a hotel room", "a holiday", "a restaurant", "a doctor's appointment", "a cab to the airport",
    ), (
        "a table at the restaurant", "a flight to rome", "a train to paris",
    )),
    "message": ((
        "an email", "a message", "a letter", "a text", "a postcard", "flowers", "the report",
    ), (
        "an answer", "the email",
    )),
    "person": ((
        "mom", "dad", "anna", "peter", "my boss", "the doctor", "my wife", "my husband", "the police", "john",
        "grandma", "the neighbours", "maria", "my brother",
    ), (
        "my sister", "my mom", "tom",
    )),
    "topic": ((
        "the sea", "love", "black holes", "the moon", "history", "penguins", "quantum physics", "photosynthesis",
        "the telephone", "dinosaurs", "electricity prices", "gravity", "football", "the roman empire", "cheap shoes",
        "autumn", "evolution", "trains", "recipes",
    ), (
        "the sun", "physics", "the stars", "art",
    )),
    "when": ((
        "today", "tomorrow", "this weekend", "next week", "tonight", "on monday", "on friday", "in london",
        "yesterday", "outside",
    ), (
        "on sunday", "next month", "in paris",
    )),
    "who": ((
        "president", "king of spain", "richest man in the world", "best football player", "pope", "author of hamlet",
        "mayor",
    ), (
        "queen of england", "best singer in the world",
    )),
    "who2": ((
        "the eiffel tower", "the president", "einstein", "the pyramids", "mount everest", "my neighbour", "napoleon",
    ), (
        "the pope", "mozart",
    )),
    "country": ((
        "france", "spain", "japan", "brazil", "germany", "canada", "egypt", "india", "norway", "italy",
    ), (
        "china", "poland", "mexico",
    )),
    "word": ((
        "hello", "good night", "thank you", "water", "i love you", "house", "cat",
    ), (
        "good morning", "dog",
    )),
    "language": ((
        "spanish", "french", "german", "italian", "chinese", "latin", "japanese",
    ), (
        "english", "russian",
    )),
    "place": ((
        "the airport", "the station", "work", "school", "the supermarket", "berlin", "the nearest pharmacy",
        "my keys", "the beach", "new york",
    ), (
        "the hospital", "london", "the office downtown",
    )),
    "thing": ((
        "gold", "bitcoin", "an app", "a game", "apple", "a new phone", "tesla", "windows", "a house", "my files",
        "a bike", "a printer driver",
    ), (
        "a laptop", "silver", "the newest game",
    )),
    "reading": ((
        "a book", "the newspaper", "a bedtime story", "my emails", "a good film", "this document", "the bible",
        "an article",
    ), (
        "a novel", "my messages",
    )),
    "event2": ((
        "christmas", "easter", "my birthday", "the next full moon", "the world cup", "the next holiday",
    ), (
        "the next election", "halloween",
    )),
    "a": ((
        "3", "12", "7", "45", "100", "20", "nine", "six", "250",
    ), (
        "8", "15", "eleven",
    )),
    "open": ((
        "open", "close", "turn on", "start", "lower", "dim", "lock",
    ), (
        "switch on", "stop",
    )),
    "nonsense": ((
        "spaceship", "dragon", "bank account", "submarine", "elephant", "time machine", "universe", "elevator",
        "piano", "bicycle", "moon", "rocket", "swimming pool", "toaster oven", "volcano", "parachute", "helicopter",
        "zebra", "bridge", "window", "fridge", "microwave", "doorbell", "lawn mower", "shower", "car", "computer",
        "garage sale",
    ), (
        "airplane", "castle", "tractor", "ocean",
    )),
}
