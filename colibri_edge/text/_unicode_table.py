"""Unicode 16.0 categories as borders of ranges; written by make_unicode_table.py, not by hand."""

PACKED = {
    "Lu": (
        'c-q}oi*dss3|&PdpdX0+7mE-WJI*D!w65LuL~IO#==-FsKp8M05CcL1Zm%<mzPW$Yzw?~a_>wvAd-QOQHvG$aHzUpyN9ecSbGCOn'
        'l_5cwK_2C^I<1Ic{>yjL#<^yc3arCQpK78TdlRUOVFzede@U#<C4N0pGd2$cj{~;pu0jNsfv{?XgmCvfr9ZCinN<IU4(8PAOiaed'
        'o~tdFfZgpw8>4uYq5(Y}j(NbY4yaj3I&de5laM1gvq^)Cff&5YHklb{7vbyCWE;&Glm4hyUk=bH1<&YGN2C|HEV~{4sDkMm9=Yoy'
        '_S_UL2{HDrjmQtUten9I>XK8swjiaXRx44xgnQkzA`ZWf$YvIkoG`b$b^~X*ryz--S~*6dS?>)BEV-$}Bz-Zz8SGiAt>b+5^h+iA'
        'Om3#<w=4'
    ),
    "Ll": (
        'c-q}o0dmA32>c39P(a21f2<2JHtEf^O)tIlIye(_RRm#8Z^V^~Q6|mAim&U>6n+pt%eqXRM^C4|V0^QVH}ltV7oj@F`C<RpUDs3Q'
        '3#1KSmQ&~rUc1AMa+l3HJ#N_+L`rNRhaD(0NN&Es`Z)>O|3r%OCD(bT;5wW+%o?f04Y!(*{+yewLC(OGDy}}#0{N3(-|=Tj{}(=('
        'Gh)JLkzFS%^2Ro@a7A4yBv6g|kLhU)a?`=oGUz9$Ne5T>8rRE$%A^kYP<A>?u@1U<bzy2--w+_1WGbomU-k0G2`l%HB^L+OK4om('
        'VRGng`|2um_fvA`y6XUqv$JqP!8Ni(oIuQ;3+#4MEisk3lP1Kw5?U^RVxJN(eVA%Uk>Z(y6{sacr3t>-u$?P4p$f4VT4b7y4w}w?'
        '250{F@dM4Gl_*H>e@6?WrvA3L3;qN-R{Xtr19+~&r~'
    ),
    "Lt": (
        'c-k{DHC8ZGFoI%Z3m{=`YHqAx0f&Yl2}4sLVPdXe2ms3b2t@'
    ),
    "Lm": (
        'c-k#ci4nsv3|d7a=(oN9Vg=I6#h(Cy_Fju?ZIKpjW5?qAs<00JK7d%3^L5+OavxT3tO$KPsQ5u7k+s@*nWavgAtjto8)P=*06SPA'
        'K#gjvV|$-0NRE4Xv1PWby^l*w7d%q^9n>F?mbdGw_c+w^$W^d+UVtKL`MN^M(3p6C$xQWD3Rm<X%L|EBj|q}{=*VG^Njtwuv=SF@'
        '*(_qHPyyKiA6P;hO;J&{-fEI$(OWUTbn*1Qyb%!o0kB|73I'
    ),
    "Lo": (
        'c-nnd0hZ+;2)l|$P(;-GUu=^=`{(b@+xMrPS`|YG(6M_PZ7keu1@4ZY^@FElyWx*7e6?v@*V|l;Pxo@z%sIkay&R#Jvp2i#U_~vN'
        'n8t%OH=NQoCl)70!wwvQ;cW{Gxu0im8l|~~(+`a6XF0<oS}oRzc{;|02H0WPzc<-?O?pWy<8o89o4dc)t`C|)pH0K@FPhI{I-aJ;'
        '=SZl5@f5K|Qex1hnKHGkod-v`rst@AJacv#`d-&R=f7SmNc(ln$0t5qdT7%DZPCG*p{R($r*)d2G-O<KU*IbPngg9|+GmWXg2I(C'
        '6Jk(5*up5{ke(1ik`i8>#%)79kY7+@S6*7hI-mV{nDdue5x#bf0!FvIg}JbvWQa?sZvnyK?xSNbWy9x0k<mjioN#GLrYC9P>0UfA'
        'Z@Q#(Gw$@WxzZ=7WzccCZ)`Zc3E)WLz4Y3-n9&XTHf5~~api>+LY9w_uMSp`p;nf6sqgn|t&ylDmrytm;V#>X21ZU$2pD4x$c**6'
        'xZ#A+N6H;5!2!5{?Bj5I5GhuvSX}WCl1@+d_M^EJD1r$xLGJ1ZMN3gjTDTqAnk))Nm%tNB%}P;qsm*0&DyJ=LLK&GfIZ8$n;FDdR'
        ')K#&d&aJMOH&!$qI>y-2x#SCnjsx$EP>h1!zgib3>&@XxDilj-aw0rX5y@kisUG?mxt=2GE3Np-8Z>|4QZZPW0~T4D%Dnt?36Dge'
        'tQyM}kh-EbDzjMf<|!GOWW}(9<9*sa8AG^+2roH22Xo#eMJ!y2LmB0-`m*lz)Eq#^dZG2&3%n4)igd*jvp*&3s^}9jZ%ax9CKd+&'
        '*q}}EH!#?IBBS)jtED*Y2q2@s#6p$&Y%JL9p+2*P*(iUM1WTu8H8Dy}NoNnkhp?o|Oa-NIRX7Djkma|rw0-JMHBLfSFwXy)Lv|AC'
        'boP={(LFOe?NJu!Um}B@n8N79m1RtZT#2HV5;dg`%CzQDTO^<avdAsfnQB}-@;u`8f}gd3)AK$(Jd;yZs;46(+aEZV00571!gm10'
        'pWS2btg~4X$FP?IxM<~LJg+2c{@=1#P?Xu!I_LI<Tq!{+1R)Ffd$-p1t)d<@IqzlFSP)GdS06^z1=YcPpK8T0#cJ2ZD-uB-DX5MZ'
        'JN;B|$j%LzW2$T#H7Fv^<)-_5E#0S|yAo{@-{gl=SI=Y3y7?V*PBz}I+*kjaHXbb4j(}3McAqZ@zxqnb8v4qNo==2GZ}%%7`xL0R'
        'Gq?B}jVBv_Zusl>%y}u-e_H7IJ(EhVj~jRB&TUhp?9WSu)>MnhK8V@A)lP$NJ=ho7t5H_{!V&O3uKfWt+sjt'
    ),
    "Mn": (
        'c-mc60hZ+;2)l|$5CPHqUu;Rh{(1X4?O3T0Lg2?fLu8E=K76e0!+Z#@)whhue=_Whm2VqcGdI(?^TsDO6sL5ipK%3W`x!T{bYW>0'
        'E;a8Apt*1uZNZxRYxs+5<M4aU05ahpC(|2DFs4UtZ^FxyLDS;BhB69}a3S*h#CgI#55O<a`TC+)YCM>3WNZS1-RDc9&}JHZwcm*!'
        'S{&F+cy+u}P}YBm+-5kP5b?N^#{)r=#d3DxKSn5yM3W_r#TbXF;<H4yNx00)_i>e%GrppZY0);22zZDI0<Z0SCbHE`;<0TM%FeE8'
        'YTl?tkeV8oCpWE754w`uQXx0+BA?6-!p{=Ysbqlef~Wf0zo$+3WT9WhS%=-e^cCieQ&#UyWz@$8Xq2QjlZq^ZXp2seY)q_-wb-Rj'
        'ig+@^Dce}|#H<K$SjJc_4hqbx78zbztfwF-fw4>^*-opHIgzjEz9M{hrTD>^OQ%QSKg|*Yyy(+iX}lnX2Ah_DH&}5tk0is1V^_9x'
        'XyCV~kj)eVZyU2gS>Hfa@&w>xDU1DJP>)HgN$BKuQc*pm5T!Gly{e<qKP56pN$Yymg>Lq1N_MXfPM>Zd5*ch52bx{neiz&wrvhr9'
        'D35i+ThBHSW+YpxtG-h`|K|Qg+N=4KZ8hEU9&@?c-xL7`>->AdA<M~N)%=%hg$lY2EyG3YGtqKF6@5L5IkEH`&hdux%QEBGH;Eht'
        '{bo6<q*nciP8WlUYhEt9C{1R9nM*}()cx@A-3EbMOb1xdmIdbw36d3<59!R%^>R}p4k_idJXH)RuDc;~-LsI#pX73XPO1(@4KK~W'
        '2}-maRECnD37B!0PyD#de=CP1tN'
    ),
    "Mc": (
        'c-mD{36caM2>XgpkVDk}e{4y>-redN2azKQsy6qKu~sfRY@Fe=*2Hqs6KUX+nFnqNraPW>(qM{JitziFCX*&Rpn`QZSdsr&zT7ol'
        '@P$REKQ!xKJ_7e5$P7EEZvY+$l8qWpEK+Dz0RqrHw4A|a^hzv*8X@b=b(39|^%ze0&hSi9|4a9_2nWp^YWg7;=~cn8YkM<{*_!YK'
        'V9&s(#4bRX!MBLbos+7(b813@UU2!YhT5gGqRbwELIGcmQ|4_k2+DR#UB6sc$bGT8E45h*Q%L((KjVl51g>$mRYf-Bv>vK{l$9A&'
        'JEij6?XR<cmQ3NbYGr0{z|vI;H9WNwv5x-bN4dGP-m!W}_tz9Ge*KTHzZU@S;Su-+3GkhWHzN6vtKe2PmSKE2qHi7_t~i^wKXmf7'
        'O)BEoH?hVK$)=br'
    ),
    "Me": (
        'c-k{GG&4{zQZO~MFi|j6Ff=tYQvflH6^u;`EzA{+0bid5#{'
    ),
    "Nd": (
        'c-p0q$rS@J2t!+$63kBeZ!8&!c_HUqECccf?0w0(B+8*ic_Hhfh@}6KSFWJWeQK>hI?=|Ev%{nkk$6l(!`8V5#oa<lN@59`9dteN'
        '15p{jxHuC;qgpdB2got{8ryt-i_OoSLFfm;ZfyM&at)%M-~At7cCgFve-;gjx^p|N(kpIr_JRbPsTT-gs8!saH{wfHmH'
    ),
    "Nl": (
        'c-j?;!3_X02*XzK2!xbE_h0O|M`T+{O$R1#3m3`3tw3b)&?XM|YLHe2WzPK{vy%_S<U-O1Cjt%T'
    ),
    "No": (
        'c-keAiw(pu2t!x#2;mpX{)^osCsi~t*to9sCs)a+A&+WZMPI7<0kR0S+?q-mC4e2C2Ig%sd(V%v?0%~idIBKxfhp;z9q?!ux^5s&'
        'Ki<4qyK-+!0{<2)g}?i}^Eo$Bb?<0p>DE$ujic|axK9HTD+<35M_qj0Zp6r8*w+x-Fq5=vku~!lw3Ex;f+!NS2!yFvN6%kAujZRb'
        '<c1JEFN?@oX*i>=A@C}^?I{=~L;`VwuDhP0_^anRuB^2*j;(ny8k_hTS^qrd;y!+$kWCB'
    ),
    "Pc": (
        'c-pfxRWMYrFf_GPFj6qI1hP%d%q=Z|93vA2V+A8)pb!9Zl?G7'
    ),
    "Pd": (
        'c-kF|*%bgl1Or=9f+LRYzp)iRf;SVSm{_!L<Zcp$$Co<8HCsv|ha90`fXD0ritrgmJ-r-DL|+L<y{jEPd#w+p2^2>'
    ),
    "Ps": (
        'c-n<f2@1e42>VK(P>)*o|Br1+*%-2e&<Gl%)_apSKqjC$y~#pm96{Y!#Y<=hYM`)FN`-Xl-;i|Chl+Rq=&OipsBvgifpWpDLo^@E'
        'toGtS9fG{_NZo$+p~bwXX8F?Py8~6vJ8%'
    ),
    "Pe": (
        'c-n<f2@ZfD4EqXC*uDAxkI9BHil}MmLMf#|uwm0AE^_CF0}<8-Nhzu+B^k@%V8{Vwdqbp$X>lSTANOY1`Dpb6d&JFYLb1r<X-^$W'
        'idmD;leeEL72#LO;r59%)(#;!IUf'
    ),
    "Pi": (
        'c-k{GH&ifGurM$&0a8X_2&7Gcgt4iSg@Pd%Lgaufu(*OD0QGqY^8'
    ),
    "Pf": (
        'c-k|xFjp{CurM&P1X9L8Y-9mqn1U$~Gy#c$Sf&sK0M*V2T>'
    ),
    "Po": (
        'c-n<i*|Eeh2y2BBY;)N3-`JBx_WMmHtYa=AwC?7%@gCTDa9S|DIv3ydV3MxD6>sihG_Rw|%7SSbldCrvde-mTRoLx@Axhcds^{#_'
        ')HGM~`T($<>=~;9J!c+^K;~O*h%#pa1)x<LQS6NoY+t$xuC{xH=L8X{UEYrczl=qmZ_U4p?(;M@JhcYhHQc#spiiS!A=)a)3OhY#'
        '@29763Nh;A+=JTBDf?Ix<{hq3|9I<<O<J|h-?;Is;;I`$lLWb+vby>)s~V2($s;#FYW@}~JkAD=XE`C1BK2xvGr1Oabf!6>>R2Hu'
        '5lWdQgfS!HmweVwP0{~q%<CI6$cvRU7cx7vO`+5vqmxT|{C)ez+6o4<hjkvVUdVBQ@~cObnj}~k84Qh~aK!l@A+Ia?-cP!lIvR<I'
        'MC~i_jkJ}V;IYKjv`+9Rm0DzDCs)=|!f=z;u6j~yC!vmXlBhy>t`@z)3NAa=usB+ERw?G`f0<&jsdX2XyDLOlWhz~KJ?irh1@x>z'
    ),
    "Sm": (
        'c-oCn$qfTA2wTM?gfnFS#fnM#>Zgi8fP6sQAdrM11^0O{b=YR&XlHf~-NbDnKuEOHgRYp)?E{2nbrI0f(HBonr;*n*(l|Mbg9Q!v'
        'Y7I{cGQv?18G_}ga;e3&HQJ3binKNxDUE^`lva&56&jZMHEo{%94&KaQo`#rF(el6)cAhFA5|PK@BzFNIz|'
    ),
    "Sc": (
        'c-k$D(G>te1Or=9!XhmFH+Ew0!*~gAJViw<1mxY|Lv)G#WNQdAd5hB5G?xM5E{?pLwS%vEiVVDNG(J;WV;yhDSx3$K02T`ufd'
    ),
    "Sk": (
        'c-l=(3l6|g1iMO)K=C~Hzu1s1SwwwWRSw<Afzvq)>kMvBs3VZCOuNw?98K|Zq~)?~-!0e=2xqX1iAjQnnoAj`@_bg52pRiZ`u#d%'
        'e&{z550CR5Cj'
    ),
    "So": (
        'c-l=<fw4m&2wTMw1Vm;3#hL_r?e*(dA0#27?LBNb#=_vQ&fy8paq0)NPsZ5fRNOB{q$TD!!Q+@?cYYAdCnFXQqA-SHxp2h!d{mtf'
        '<KlnINXjUZo^(<kC;oAwTAmSWL<YYUezxo<-k(Hq?0<@`O%dxwaL$WGfz!YF8k8Pf`pf2KU#MJ^4rv%yAFzXB)_xG~<iLk>wZ2qd'
        '<XNoHM7)5q__qO;8!mzz@vS;&uN<@qSzbI#@-5iLnl1oAg*v$1U0LX=2;VTkh}~69!o`&igok{9?khjVHA$;A3dwRwbK7%dj=QsA'
        'o@Kahu$k2)9Qy<AA{Rw0T`<k|mK2y_FG5&B_en<_=GfK+WVOdc1Trq4MkB?_53CxghPrBjC|a~czEGpVLc<zj9Ts&h&Mh^$>$XrX'
        '{FXcDYU#LpTrgOLZXj7?K385ZoKQ>F)S;K!&~$s?nKGQM)2-caVX#}l1XWCkjxKc!aH*HqjsRf2GUK^|r-jgDQ1>G-xdPZ_Wt*LL'
        ')pY#<b;8!wQl9I28p)jV<nd`yf$7zje*jSgt~m'
    ),
    "Zs": (
        'c-k{IQZQ67G%^R0rlyvbK+4F(7${<>U~C5Dn1Ccq3=9ku3<01b2W9'
    ),
    "Zl": (
        'c-pftGB#2$1ONmh0U-'
    ),
    "Zp": (
        'c-pftGB#E)1ONmk0U`'
    ),
    "Cc": (
        'c-k{iFg8-KG*vJ*1^@}F0m='
    ),
    "Cf": (
        'c-kF}%MAcg2m)K71O=a;{u^7}3z?81cnJ<y5()BnE@L*-0ix~4K9LrI2j<2q?|j3{sY7lh1pCH*&Dd*rLNQM4R4g=VT5&frOnwza'
        '7oz'
    ),
    "Co": (
        'c-k{HH#RX*Ff%bQP_Q(#G_o{PFf%nZHc>Ew&;Vc71@-'
    ),
    "space": (
        'c-j?;!4Uv32*Orj1hs0*{)-hpfy;#$<U=AO#9Cp7^zS3BCCU~08sYE*43G(t'
    ),
    "Han": (
        'c-j?=feipK2*O_B1ZAl6|HsB+qF4f%8v+}NyGVj5X#D<R!O#HPLe~<$jI|)=3a1-HhWBpA*S3uBT!_QKA(Z8~Bj2lO{?gGLWT8Km'
        'drIczD(zX6Q_BY$t{o`'
    ),
    "after 9.0": (
        'c-pmBS+XNB2)jxj!I;JN{Vz61;7(?%nxCoEOS-*aKtlNKy`TBSW6yeopE>eN4_*~>d^niMkLIuYljH00{74RS&af*+E|HN|?D3P+'
        '78r0WfT>*J&%`15mai-7u|AkDCp6ue&*=%vCBl(ByB0bf2@ZbkobTVH9q$Fo<tyK$Rt6l$*m>&rClk&ndPd7unUYG!;>>T3-@Vsy'
        '<&ux%vSF5KXqW7o=WcCR73Ua()HiaZD$_bEDq&9OIld%#nDqL^9oq5dnHv^=-7{WyzxNdac2h8MsDAA=jNKO?Ai#LWP5MR{)~OX5'
        'EaTB}Zaj_RQX;u=)_HVwBIf(s=8J&6`JKPecn?Q8jJ#={$@sCI%+)9exi3$Wvzs4G`&u3GEde~+eNg?wERFfy7jRw)V5BEISW@{H'
        '2e=$;Ed~mce^_MmMj^$l(@Bs1@&YOC?M#{h&NVQi^aG*R7wTnJF47-^OK^h}4@?9D1uaEh^BqRcEhNfVQwioq87rm~PptNR6(FO^'
        'noibi?HG0U!+s&Ek7B*+n|US*52tm61Q{L6grXEajBhdTxiN($xkJXL53?i(JmV(imlc;-l1)h?HZ*A)h2UR^dsK-Sn0mUT|NaLj'
        'Q_d#U>d;$Zj+y>oH5UI^a!C8ZAR*IQMtxuuv9)v{%^HBqq$Agv=wwSe3vO(R-twv!MINnib0D<3q_gb7`CJXK0ox)BRF>B2(@>B0'
        'FhicZY&A>2Qs6vAX1r7sS!Cyg2X>&wyA1}wU#wzKB09hFrNja$NG!p?K&mE=*wq-wQkUWcT(;V;ens&hq>rB^kL~NIT{G_f*6C6#'
        ')CSXkslE4GG(aOA5abR8no(gNl&H{Rb1U@N2G}_YE8jOWB`+);py4bo&@D#=?4DP8y?m#3SSvk+jGBPT$+YepgabJ(9|S3L_Bp`k'
        'qgT8_zSu%Q;!PBT@~5Y?;UL*sl}~#!stZEQ_IMUq=PWx%QZuS_R?+z#R5B*OA#lLlEAP=|O+$Is!P3dDO7gM`FxK!d)x1Ig3F7U5'
        'rtIH3>1~1DO$y)$&K@7Zu}UVG5rNRDPC1-1EUl%G+*3uA@6IyTYVT6f@75B7ZscL1R4Qu`lO~P64(H&`qCdnNENGztEfe<zXvazm'
        'BZ=l|en%qg0lZ4eN8NY2nkmqw^lZUQ2rVYciCRTtb&Xl2KWQgqa>+u?+eZ3y&<vRbPMyLJNwVXm<>)8u42Oioh7_~C5Og}8oZpCi'
        'eR}V`l}Y8PuT<4!tQ*0qD__CxeW_z3H=I9lSf0fW<joAtZbP=*Ye=(T48*mHVVUUV#T|+el+vma<m=|p*Bg7u5kI}jr|*6?{PMYT'
        '_X=X)7DoA5_fYSb>SCi>u#9T)es2r>(h{!Q<<MZ0p1exn9<8<aRC`+av^XlIdxs5L2#MWWVpBOvhLS<J+*IS(_iAyKkJ=)XUpSOW'
        'wYhLA?sZ09&B?383b5G^Y6Jlcwr_X+AHRfSpa2B_CuAVuL-!9sfhE5'
    ),
}
