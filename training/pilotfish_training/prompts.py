"""Prompts of our own, put together from lists: chat, math, code, summary, translate, edit.

Kinds that work on a text (summary, translate, edit) take it from `material`: paragraphs and programs the target wrote.
"""

import random

TOPICS = """how bread rises;why the sky is blue;the water cycle;how vaccines work;the history of tea;bicycle gears;
how a compiler works;what a database index is;photosynthesis;plate tectonics;the rules of chess;how to grow tomatoes;
black holes;the French Revolution;how batteries store energy;compound interest;why leaves change colour;coral reefs;
how the internet routes packets;public key cryptography;recursion in programming;binary search;hash tables;
virtual memory;how hard disks work;operating system scheduling;garbage collection in programming languages;
the difference between threads and processes;how search engines rank pages;machine learning;neural networks;
decision trees;linear regression;the scientific method;supply and demand;inflation;how elections work;
the human heart;how muscles grow;sleep and memory;stress and health;the immune system;antibiotics;the solar system;
the phases of the moon;tides;volcanoes;earthquakes;hurricanes;climate change;renewable energy;wind turbines;
solar panels;electric cars;jet engines;how bridges are built;skyscrapers;the Roman Empire;ancient Egypt;the Silk Road;
the printing press;the Industrial Revolution;the Renaissance;Shakespeare;jazz music;how pianos work;painting with
watercolours;photography basics;film editing;cooking rice;fermentation;coffee roasting;baking cakes;healthy breakfasts;
training for a marathon;learning to swim;yoga;meditation;time management;writing a resume;job interviews;
public speaking;negotiation;budgeting;saving for retirement;buying a first home;renting an apartment;moving abroad;
learning a language;reading more books;note-taking;studying for exams;teamwork;conflict at work;remote work;
starting a small business;marketing a product;customer service;travel in Japan;hiking safely;camping;gardening in
small spaces;house plants;training a dog;caring for cats;keeping an aquarium;bees and pollination;migration of birds;
whales;rainforests;deserts;glaciers;soil;recycling;water treatment;how airplanes fly;GPS;radio waves;lasers;
microscopes;telescopes;DNA;genetics;evolution;dinosaurs;the periodic table;acids and bases;magnetism;gravity;
relativity;quantum mechanics;probability;statistics;calculus;geometry;prime numbers;Fibonacci numbers;logic puzzles;
version control with git;unit testing;code review;object-oriented programming;functional programming;REST APIs;
SQL joins;caching;load balancing;cloud computing;containers;data compression;error correction;floating point numbers;
sorting algorithms;graph search;dynamic programming;regular expressions;file systems;web browsers;HTML and CSS"""
TOPICS = [topic.replace("\n", " ").strip() for topic in TOPICS.split(";")]

READERS = ["a beginner", "a ten-year-old child", "a high school student", "someone who knows no mathematics",
           "a new colleague", "an expert from another field", "a busy manager", "my grandmother", "a curious traveller"]
EXPLAIN = ["Explain {t} to {r}.", "Can you explain {t}?", "What should {r} know about {t}?", "Tell me about {t}.",
           "Write a short article about {t}.", "Give me five facts about {t}.", "What are common mistakes people make"
           " about {t}?", "Write an introduction to {t} for {r}.", "List the pros and cons of {t}.", "Why does {t}"
           " matter?", "Write a step by step guide to {t}.", "Describe {t} in simple words, with an example.",
           "I want to learn about {t}. Where do I start?", "Compare {t} with {u}.", "Write a dialogue between a teacher"
           " and a student about {t}.", "What questions would {r} ask about {t}? Answer each of them briefly."]
SITUATIONS = """my boss wants me to work on weekends;I was offered a promotion but I would lose my free Fridays;my best
friend does not answer my messages any more;I cannot decide between two universities;my neighbour is very loud at
night;I want to change careers at forty;I have trouble sleeping before exams;my brother asked me to lend him money;I
would like to eat better but I have little time;I feel lonely since I moved to a new town;my roommate never cleans the
kitchen;I am nervous about giving a talk next week;I want to stop looking at my phone so often;my parents disagree with
my plans;I spend more money than I earn;my team misses every deadline;I want to run my first ten kilometres;my landlord
wants to raise the rent;I got a bad grade and do not know how to tell my parents;I am thinking of adopting a dog;I have
two job offers and must answer by Monday;my child does not want to do homework;I quarrelled with my sister about a
family holiday;I would like to start a small garden;I was asked to lead a project with people older than me"""
SITUATIONS = [text.replace("\n", " ").strip() for text in SITUATIONS.split(";")]
ADVICE = ["{S}. What should I do?", "I need advice: {s}.", "{S}. Give me some practical steps.", "Help me think: {s}.",
          "{S}. What are my options, and what speaks for each?", "{S}. How would you handle this?"]
WRITE = ["Write a poem about {t}.", "Write a short story that involves {t}.", "Write an email to {r} about {t}.",
         "Write a product description related to {t}.", "Give me ten ideas for a blog about {t}.",
         "Write a quiz with five questions and answers about {t}.", "Draft a speech about {t}.",
         "Make an outline for an essay on {t}."]

NAMES = ["Anna", "Ben", "Carla", "David", "Elena", "Felix", "Grace", "Hugo", "Ines", "Jonas", "Kira", "Leo", "Mia",
         "Noah", "Olga", "Paul", "Rosa", "Sam", "Tara", "Vera"]
THINGS = ["apples", "pencils", "tickets", "books", "eggs", "candles", "shirts", "bottles", "chairs", "sandwiches",
          "stamps", "balls", "plants", "cups", "boxes", "lamps"]
PLACES = ["shop", "school", "farm", "library", "market", "factory", "theatre", "garden centre", "café", "museum"]


def _math(rng):
    n = lambda low, high: rng.randint(low, high)
    a, b, thing, other = rng.choice(NAMES), rng.choice(NAMES), rng.choice(THINGS), rng.choice(THINGS)
    place = rng.choice(PLACES)
    problems = [
        f"{a} has {n(3, 90)} {thing} and buys {n(2, 40)} more. Then {a} gives {n(2, 20)} to {b}. How many are left?",
        f"A {place} sells {thing} for ${n(2, 20)} each and {other} for ${n(2, 30)} each. It sold {n(5, 90)} {thing} "
        f"and twice as many {other}. What was the revenue?",
        f"{a} drives {n(30, 400)} km in {n(2, 8)} hours. What is the average speed?",
        f"A {place} had {n(100, 900)} visitors on Saturday and {n(5, 60)}% more on Sunday. How many came in all?",
        f"{a} earns ${n(10, 40)} an hour and works {n(4, 9)} hours a day, {n(3, 6)} days a week. A quarter goes to "
        f"rent. How much is left each week?",
        f"A rectangle is {n(3, 40)} cm long and {n(2, 30)} cm wide. Find its area and its perimeter.",
        f"Solve for x: {n(2, 12)}x + {n(1, 50)} = {n(51, 200)}.",
        f"What is {n(11, 99)} times {n(11, 99)}?",
        f"What is {n(5, 95)}% of {n(50, 900)}?",
        f"{a} and {b} share {n(20, 200)} {thing} in the ratio {n(1, 5)} to {n(1, 5)}. How many does each get?",
        f"A tank holds {n(100, 900)} litres. A pump fills {n(5, 30)} litres a minute and a leak loses {n(1, 4)} litres "
        f"a minute. How long does it take to fill?",
        f"The sum of three consecutive numbers is {3 * n(10, 90)}. What are they?",
        f"{a} saves ${n(10, 90)} each month at {n(1, 9)}% yearly interest. How much is it after {n(1, 5)} years?",
        f"There are {n(3, 12)} red and {n(3, 12)} blue balls in a bag. What is the chance of drawing a red one?",
        f"A train leaves at {n(6, 11)}:{n(10, 50)} and arrives {n(65, 400)} minutes later. When does it arrive?",
        f"{a} bought {n(2, 9)} {thing} at ${n(2, 30)} each and paid with a ${n(100, 400)} note. What is the change?",
        f"Convert {n(2, 90)} kilometres to miles and explain the steps.",
    ]
    ending = ["", " Explain each step.", " Show your work.", " Think step by step.", " Give only a short answer.", ""]
    return rng.choice(problems) + rng.choice(ending)


TASKS = """reverses a string;checks whether a word is a palindrome;counts the words in a text;finds the largest number
in a list;removes duplicates from a list;computes the factorial of a number;returns the n-th Fibonacci number;checks
whether a number is prime;sorts a list of dictionaries by a key;merges two sorted lists;rotates a matrix by 90 degrees;
finds the longest common prefix;counts vowels;converts Celsius to Fahrenheit;reads a CSV file and sums a column;writes
a dictionary to a JSON file;computes the median of a list;groups words by their first letter;validates an email
address;generates a random password;flattens a nested list;finds all pairs with a given sum;computes the greatest
common divisor;converts a number to binary;checks balanced parentheses;does a binary search;implements bubble sort;
implements quicksort;implements a stack;implements a queue with two stacks;implements a linked list;implements a binary
tree with insert and search;counts how often each letter occurs;computes the average of each row;transposes a matrix;
parses a date;computes the distance between two points;simulates rolling two dice;prints a multiplication table;
encrypts a text with a Caesar cipher;finds the second largest number;splits a list into chunks;computes a running
average;caches the results of a function;retries a function that may fail;measures how long a function takes;downloads
a web page;lists all files in a folder;renames files in a folder;draws a bar chart;finds the shortest path in a grid;
converts Roman numerals to integers;checks whether two strings are anagrams;capitalises each word;finds missing numbers
in a range;computes compound interest;models a bank account;models a shopping cart;models a parking lot;plays
rock-paper-scissors;plays tic-tac-toe;manages a to-do list"""
TASKS = [task.replace("\n", " ").strip() for task in TASKS.split(";")]
LANGUAGES = ["Python"] * 6 + ["JavaScript", "Java", "C", "C++", "Go", "Rust", "SQL and Python"]
CODE = ["Write a {l} function that {k}.", "Write a {l} program that {k}.", "How do I write {l} code that {k}?",
        "Write a {l} function that {k}, with comments.", "Write a {l} function that {k} and handles empty input.",
        "Implement code in {l} that {k}, then show an example of its use.",
        "Write a {l} class that {k}, and tests for it.",
        "Write {l} code that {k}. Explain how it works.", "Write two {l} functions: one that {k}, and one that {j}."]

SUMMARY = ["Summarize this text:\n\n{m}", "Give a short summary of the following text.\n\n{m}", "{m}\n\nSummarize the"
           " text above in two sentences.", "What are the key points of this text?\n\n{m}", "Shorten this text:\n\n{m}",
           "Read the text and list its main ideas as bullet points.\n\n{m}", "Write a title and a summary for this"
           " text.\n\n{m}", "Rewrite the following text in simpler words.\n\n{m}", "TL;DR:\n\n{m}"]
TONGUES = ["French", "Spanish", "German", "Italian", "Portuguese", "Dutch"]
TRANSLATE = ["Translate to {f}:\n\n{m}", "Translate this text into {f}.\n\n{m}", "How do you say this in {f}?\n\n{m}",
             "Please translate the text below into {f} and {g}.\n\n{m}", "{m}\n\nTranslate the text above into {f}."]
PEOPLE = ["my uncle", "our teacher", "the old baker", "a friend of mine", "the doctor", "my cousin", "the whole family",
          "a young woman", "the gardener", "her husband", "our guide", "the captain"]
ACTS = ["found a small dog near the river", "cooked soup for everyone", "missed the bus to work", "painted the garden"
        " door green", "told us a long story about the war", "bought fresh fish at the market", "played the violin"
        " until midnight", "forgot the keys at the office", "planted three cherry trees", "wrote a letter to the mayor",
        "repaired the old radio", "won a prize for the best cake", "lost a glove in the snow", "sang at the wedding",
        "closed the shop early", "visited the castle on the hill", "carried the boxes upstairs", "read the newspaper"]
WHEN = ["Yesterday", "Two weeks ago", "On Sunday morning", "In winter", "After dinner", "When I was a child", "Later",
        "Early in the morning", "Before the storm", "At the end of the month", "One evening", "During the holidays"]
WEATHER = ["It was raining and the streets were empty.", "The sun was shining.", "Everybody laughed.",
           "Nobody knew why.",
           "It was the best day of the year.", "The children were very tired.", "We were late, but it did not matter.",
           "In the end everything was fine.", "I will never forget it.", "The food was simple and good."]


def _tale(rng):
    """A few plain sentences."""
    parts = [f"{rng.choice(WHEN)} {rng.choice(PEOPLE)} {rng.choice(ACTS)}." for _ in range(rng.randint(1, 4))]
    return " ".join(parts + rng.sample(WEATHER, rng.randint(0, 2)))


NOUNS = ["Order", "Item", "User", "Shape", "Vehicle", "Sensor", "Player", "Ticket", "Invoice", "Message", "Task", "Car",
         "Student", "Employee", "Room", "Device", "Product", "Recipe", "Library", "Counter", "Timer", "Cart", "Matrix"]
FIELDS = ["name", "price", "size", "count", "owner", "status", "title", "weight", "level", "score", "color", "speed",
          "total", "limit", "email", "age", "items", "data", "rate", "kind"]
VERBS = ["update", "reset", "show", "add", "remove", "compute", "check", "increase", "reduce", "load", "save", "scale"]


def _class(rng):
    """A small Python class and the names in it."""
    name, fields = rng.choice(NOUNS), rng.sample(FIELDS, rng.randint(2, 4))
    lines = [f"class {name}:", f"    def __init__(self, {', '.join(fields)}):"]
    lines += [f"        self.{field} = {field}" for field in fields]
    methods = rng.sample(VERBS, rng.randint(2, 4))
    for verb in methods:
        field, other, n = rng.choice(fields), rng.choice(fields), rng.randint(1, 20)
        lines += ["", *rng.choice([
            [f"    def {verb}(self, value):", f"        if value < {n}:",
             f'            raise ValueError("value is too small")', f"        self.{field} = value",
             f"        return self.{field}"],
            [f"    def {verb}_{field}(self):", f"        return self.{field} * {n}"],
            [f"    def {verb}(self):", f'        print(f"{field}: {{self.{field}}}, {other}: {{self.{other}}}")'],
            [f"    def {verb}_all(self, values):", f"        for value in values:",
             f"            self.{field}.append(value)", f"        return len(self.{field})"],
            [f"    def {verb}(self, other):", f"        return self.{field} == other.{field}"]])]
    return name, fields, methods, "\n".join(lines)


def _edit(rng, programs):
    if programs and rng.random() < 0.3:
        ask = ["Add comments to this code.", "Find the bug in this code, fix it and print the whole program.",
               "Add docstrings and show the complete code.", "Rewrite this code with better names.",
               "Add error handling to this program and print all of it.", "Explain this code line by line."]
        return f"{rng.choice(ask)}\n\n```\n{rng.choice(programs)}\n```"
    name, fields, methods, code = _class(rng)
    new, field, extra = rng.choice(NOUNS) + rng.choice(NOUNS), rng.choice(fields), rng.choice(FIELDS)
    asks = [f"Rename `{name}` to `{new}` in this file and show the complete result.",
            f"Rename the attribute `{field}` to `{field}_value` everywhere and print the full class.",
            f"Add a field `{extra}` with the default {rng.randint(0, 99)} to this class. Print the entire class.",
            f"Add a docstring to each method and leave the rest as it is.", f"Add type hints to this class.",
            f"Add a `__repr__` method to this class and print the complete code again.",
            f"Make `{name}` a dataclass.", f"Repeat this code exactly, without any change.",
            f"Call the class `{new}` instead of `{name}` and give `{field}` a default. Show the whole code."]
    ask, block = rng.choice(asks), f"```python\n{code}\n```"
    return f"{ask}\n\n{block}" if rng.random() < 0.8 else f"{block}\n\n{ask}"


def draw(rng: random.Random, material: dict[str, list[str]]) -> tuple[str, str]:
    """One prompt: (kind, text). `material` has "paragraph" and "program" lists, which may be empty."""
    kind = rng.choices(["chat", "math", "code", "summary", "translate", "edit"], [30, 18, 20, 11, 9, 12])[0]
    t, u = rng.sample(TOPICS, 2)
    if kind == "chat":
        s, r = rng.choice(SITUATIONS), rng.choice(READERS)
        pattern = rng.choice(rng.choices([EXPLAIN, ADVICE, WRITE], [5, 2, 2])[0])
        return kind, pattern.format(t=t, u=u, r=r, s=s, S=s[0].upper() + s[1:])
    if kind == "math":
        return kind, _math(rng)
    if kind == "code":
        k, j = rng.sample(TASKS, 2)
        return kind, rng.choice(CODE).format(l=rng.choice(LANGUAGES), k=k, j=j)
    if kind == "edit":
        return kind, _edit(rng, material["program"])
    own = material["paragraph"]
    text = rng.choice(own) if own and rng.random() < (0.9 if kind == "summary" else 0.4) else _tale(rng)
    if kind == "summary":
        return kind, rng.choice(SUMMARY).format(m=text)
    f, g = rng.sample(TONGUES, 2)
    return kind, rng.choice(TRANSLATE).format(f=f, g=g, m=text)


def material_prompts(rng: random.Random) -> tuple[str, str]:
    """Asks for a text that later prompts work on: (material kind, prompt)."""
    if rng.random() < 0.6:
        where = rng.choice(["for a newspaper", "for a school book", "for a travel guide", "for a blog",
                            "in plain words"])
        return "paragraph", f"Write one paragraph about {rng.choice(TOPICS)}, {where}."
    return "program", f"Write a short Python program that {rng.choice(TASKS)}. Print only the code."
