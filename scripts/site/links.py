"""links.py FOLDER reports the links of a built site, and fails if one leads nowhere or if a page loads anything from elsewhere.

Links to other hosts are listed and not followed: a build needs no network.
"""

import collections
import html.parser
import pathlib
import re
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPOSITORY = re.compile(r"https://github\.com/ringcache/ringcache/(?:blob|tree)/main/([^#]*)")


class Page(html.parser.HTMLParser):
    """The names that a page has, and what it links to and loads."""

    def __init__(self, text):
        super().__init__()
        self.names, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.names.update(filter(None, (values.get("id"), values.get("name") if tag == "a" else None)))
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag == "link" and values.get("href"):
            (self.links if values.get("rel") in ("next", "prev", "index", "search", "canonical") else self.loads).append(values["href"])
        if tag in ("script", "img", "source", "iframe", "audio", "video", "object", "embed"):
            self.loads += filter(None, (values.get("src"), values.get("srcset"), values.get("data")))


def check(site):
    """Returns the counts, the other hosts, and what is wrong."""
    pages = {p: Page(p.read_text()) for p in sorted(site.rglob("*.html"))}
    counts, hosts, wrong = collections.Counter(pages=len(pages)), collections.Counter(), []

    def leads(page, target, loaded):
        url = urllib.parse.urlsplit(target)
        where = f"{page.relative_to(site)}: {target}"
        if loaded and (url.scheme not in ("", "data") or url.netloc):
            wrong.append(f"{where}: loaded from elsewhere")
        elif loaded and url.scheme == "data":
            counts["parts"] += 1
        elif found := REPOSITORY.fullmatch(target.partition("#")[0]):
            counts["files"] += 1
            if not (ROOT / urllib.parse.unquote(found[1])).exists():
                wrong.append(f"{where}: no such file in the repository")
        elif url.scheme or url.netloc:
            counts["elsewhere"] += 1
            hosts[url.netloc or url.scheme] += 1
        else:
            counts["parts" if loaded else "links"] += 1
            to = (page.parent / urllib.parse.unquote(url.path)).resolve() if url.path else page
            if not to.is_file():
                wrong.append(f"{where}: no such file")
            elif url.fragment and to in pages and urllib.parse.unquote(url.fragment) not in pages[to].names:
                wrong.append(f"{where}: no such place on the page")

    for path, page in pages.items():
        for target in page.links:
            leads(path, target, False)
        for target in page.loads:
            leads(path, target, True)
    for path in sorted(site.rglob("*.css")):
        for target in re.findall(r"(?:url\(|@import\s+)[\"']?([^\"')\s]+)", path.read_text()):
            if not target.startswith("data:"):
                leads(path, target.partition("?")[0], True)
    return counts, hosts, wrong


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    counts, hosts, wrong = check(site)
    if counts["pages"] < 20 or counts["links"] < 500:
        wrong.append(f"{site}: {counts['pages']} pages with {counts['links']} links are not the site")
    print(f"{counts['pages']} pages; {counts['links']} links within the site and {counts['parts']} pictures, scripts and styles, all of it there")
    print(f"{counts['files']} links to files of the repository, all of them there; {counts['elsewhere']} to other hosts, not followed:")
    for host, n in hosts.most_common():
        print(f"  {n:4} {host}")
    for text in wrong:
        print("wrong:", text)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
