/* Search of the site, which works from disk too: a page opened as a file may load a script, but no JSON and no worker.
   The index is a script, loaded when the search is first used. */

"use strict";

document.addEventListener("DOMContentLoaded", () => { // the theme puts the form after its scripts
    const MOST = 30;
    const SUMMARY = 200;
    const TITLE_WEIGHT = 20; // a section named after the words before one that mentions them often
    const input = document.getElementById("mkdocs-search-query");
    const list = document.getElementById("mkdocs-search-results");
    if (!input || !list) {
        return;
    }
    let loading = null;

    function load() {
        loading ??= new Promise((resolve, reject) => {
            const script = document.createElement("script");
            script.src = `${base_url}/search/search_index.js`;
            script.onload = () => resolve(window.searchIndex.docs);
            script.onerror = reject;
            document.head.append(script);
        });
        return loading;
    }

    function occurrences(text, word) {
        return text.split(word).length - 1;
    }

    function score(section, words) {
        const title = section.title.toLowerCase();
        const text = section.text.toLowerCase();
        let sum = 0;
        for (const word of words) {
            const hits = TITLE_WEIGHT * occurrences(title, word) + Math.min(10, occurrences(text, word));
            if (hits === 0) {
                return 0; // every word must occur
            }
            sum += hits;
        }
        return sum;
    }

    function summary(section, word) {
        const at = Math.max(0, section.text.toLowerCase().indexOf(word) - SUMMARY / 4);
        return section.text.slice(at, at + SUMMARY);
    }

    function show(sections, words) {
        list.replaceChildren();
        for (const section of sections) {
            const article = document.createElement("article");
            const heading = document.createElement("h3");
            const link = document.createElement("a");
            const text = document.createElement("p");
            link.href = `${base_url}/${section.location}`;
            link.textContent = section.title;
            text.textContent = summary(section, words[0]);
            heading.append(link);
            article.append(heading, text);
            list.append(article);
        }
        if (words.length > 0 && sections.length === 0) {
            list.textContent = "Nothing has these words.";
        }
    }

    async function search() {
        const words = input.value.toLowerCase().split(/\s+/).filter((word) => word.length > 1);
        const sections = words.length > 0 ? await load() : [];
        const ranked = sections
            .map((section) => ({ section, score: score(section, words) }))
            .filter((row) => row.score > 0)
            .sort((one, other) => other.score - one.score)
            .slice(0, MOST);
        show(ranked.map((row) => row.section), words);
    }

    input.addEventListener("input", search);
    const asked = new URLSearchParams(window.location.search).get("q");
    if (asked) {
        input.value = asked;
        search();
    }
});
